// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/cancel_board.hpp"
#include "core/control/session.hpp"
#include "core/metrics/server_metrics.hpp"
#include "core/server/exchange_state.hpp"
#include "core/server/lendable_slots.hpp"
#include "core/server/part_credits.hpp"
#include "core/server/part_inbox.hpp"
#include "staging/device_work.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace accel::core {

class worker;

/// One client at the server: its link and its slots. Belongs to its worker's thread, except where marked.
class session {
  public:
    session(worker& owner, std::uint64_t id, std::string_view scheme, client_identity client,
            const link_geometry& geometry);
    ~session();
    session(const session&) = delete;
    session& operator=(const session&) = delete;

    /// Checks an arrived message against this session. Null: the peer broke the protocol.
    [[nodiscard]] exchange_state* admit(const link_event& event) noexcept;
    /// The same for what `admit` does not know: a request with extensions.
    [[nodiscard]] exchange_state* admit_extended(const link_event& event) noexcept;
    /// … a request that comes in parts, or whose response may.
    [[nodiscard]] exchange_state* admit_in_parts(const link_event& event) noexcept;
    /// … and room for a part of a response, or a part of a request. False: the peer broke the protocol. `returned`: to
    /// be sent back at once, because its call has ended.
    [[nodiscard]] bool take_further(const link_event& event, nanoseconds at, exchange_state*& returned) noexcept;
    /// The room that the client has given for the parts of this call's response.
    [[nodiscard]] part_credits& parts_of(const exchange_state& call) noexcept { return parts_[call.slot]; }
    /// The parts of this call's request.
    [[nodiscard]] part_inbox& inbox_of(const exchange_state& call) noexcept { return inboxes_[call.slot]; }
    /// A handler takes a part, with which it keeps the session. The thread that has the exchange.
    void hold_part(exchange_state& part) noexcept;
    /// Hands a part to the link, or a slot that is given back. `again`: try later.
    [[nodiscard]] status send_part(exchange_state& part, nanoseconds at) noexcept;
    /// The slot of a part is free for what the client wants next.
    void finish_part(exchange_state& part) noexcept;
    /// A part waits for the link, and the session with it.
    void hold_for_part() noexcept { ++open_; }
    /// Writes the response's header into its slot and hands it to the link. `again`: try later.
    [[nodiscard]] status send(exchange_state& answered, nanoseconds at) noexcept;
    /// Drops the answer of a client that is gone.
    status drop(const exchange_state& answered) noexcept;
    /// The slot is free for the client's next request.
    void finish(exchange_state& answered) noexcept;
    /// The transport no longer touches the last lent answer in this slot.
    void end_lease(std::uint32_t slot) noexcept;
    void end_leases() noexcept;

    [[nodiscard]] worker& owner() const noexcept { return owner_; }
    [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
    [[nodiscard]] std::string_view scheme() const noexcept { return scheme_; }
    [[nodiscard]] const client_identity& client() const noexcept { return client_; }
    [[nodiscard]] const link_geometry& geometry() const noexcept { return geometry_; }
    /// Exchanges without an answer, and parts that the link has not taken.
    [[nodiscard]] std::uint32_t exchanges() const noexcept { return open_; }
    /// These, and what else handlers have of it.
    [[nodiscard]] std::uint32_t open() const noexcept { return open_ + held_parts_.load(std::memory_order_relaxed); }
    /// Any thread: the client is gone, answers go nowhere.
    [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }
    void set_gone() noexcept {
        gone_.store(true, std::memory_order_relaxed);
        cancels_->end();
        for (part_credits& each : parts_) each.wake();
        for (part_inbox& each : inboxes_) each.wake();
    }
    /// Any thread: which calls nobody waits for. It has something to tell of a client that is gone.
    [[nodiscard]] cancel_board& cancels() const noexcept { return *cancels_; }
    /// For the control plane, which may outlive the session.
    [[nodiscard]] const std::shared_ptr<cancel_board>& shared_cancels() const noexcept { return cancels_; }

    /// Once, before the session is installed; the link is attached.
    void set_link(std::unique_ptr<link> made) noexcept;
    /// The same for a session that a `session_maker` serves: it has no data path, and nothing arrives here.
    void set_connection(std::unique_ptr<connection> made) noexcept { connection_ = std::move(made); }
    [[nodiscard]] core::connection& connection() const noexcept { return *connection_; }
    [[nodiscard]] link& path() const noexcept { return *path_; }
    /// Its slots, for channels that lend them. Any thread.
    [[nodiscard]] lendable_slots& lends() noexcept { return lends_; }
    /// Closes the connection. True: the transport touches nothing of this session any more. Handlers may.
    [[nodiscard]] bool close();
    /// Once, after `set_link`: its handler wants its bytes on a device.
    void put_on_device(device_session place);
    /// Null: they are on the host.
    [[nodiscard]] const device_session* on_device() const noexcept { return device_.get(); }
    std::size_t memory_bytes = 0;
    [[nodiscard]] std::size_t device_bytes() const noexcept;
    /// Once, before the session is installed: where its calls count.
    void count_in(scheme_series* series) noexcept;
    /// Null: nothing is counted.
    [[nodiscard]] scheme_series* series() const noexcept { return series_; }
    /// … and where those without a target count.
    [[nodiscard]] server_series* counts() const noexcept { return series_ == nullptr ? nullptr : &series_->untargeted; }

  private:
    void part_from_client(recall how);
    /// The state of the call that a further slot is for.
    enum class call_state : std::uint8_t { open, early, ended, wrong };
    [[nodiscard]] call_state state_of(std::uint32_t slot, std::uint32_t generation) const noexcept;
    [[nodiscard]] bool start_parts(std::uint32_t slot, std::uint32_t generation) noexcept;
    [[nodiscard]] bool start_inbox(std::uint32_t slot, std::uint32_t generation) noexcept;
    [[nodiscard]] bool add_room(exchange_state& room, const link_event& event, std::uint32_t call,
                                call_state is) noexcept;
    [[nodiscard]] bool add_part(exchange_state& part, const link_event& event, std::uint32_t call,
                                call_state is) noexcept;
    [[nodiscard]] std::span<std::byte> part_room(std::uint32_t slot) const noexcept;
    void write_header(const exchange_state& answered, nanoseconds at) const noexcept;
    static void refuse_unread_parts(exchange_state& answered) noexcept;
    [[nodiscard]] status send_with_extras(exchange_state& answered, nanoseconds at) noexcept;

    worker& owner_;
    std::unique_ptr<core::connection> connection_;
    link* path_ = nullptr;          ///< the connection, where it has a data path
    lendable_slots lends_;          ///< of `path_`, which they end before
    std::size_t answer_bytes_ = 0;  ///< that fit into a slot of `path_`
    std::uint64_t id_;
    std::string_view scheme_;
    client_identity client_;
    link_geometry geometry_;
    std::unique_ptr<device_session> device_;
    std::vector<device_work> device_work_;
    std::vector<exchange_state> exchanges_;
    std::vector<part_credits> parts_;  ///< by the slot of the call, as the next
    std::vector<part_inbox> inboxes_;
    const std::shared_ptr<cancel_board> cancels_;
    std::vector<std::unique_ptr<own_memory>> own_;
    scheme_series* series_ = nullptr;
    std::uint32_t open_ = 0;
    std::atomic<std::uint32_t> held_parts_{0};  ///< of requests, by handlers
    std::atomic<bool> gone_{false};
};

}  // namespace accel::core
