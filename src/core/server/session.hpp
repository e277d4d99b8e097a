// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/cancel_board.hpp"
#include "core/control/session.hpp"
#include "core/metrics/server_metrics.hpp"
#include "core/server/exchange_state.hpp"
#include "core/server/lendable_slots.hpp"
#include "core/server/part_credits.hpp"
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
    /// … a request whose response may come in parts.
    [[nodiscard]] exchange_state* admit_in_parts(const link_event& event) noexcept;
    /// … and room for a part. False: the peer broke the protocol. `returned`: room to send back at once, because its
    /// call has ended.
    [[nodiscard]] bool take_room(const link_event& event, nanoseconds at, exchange_state*& returned) noexcept;
    /// The room that the client has given for this call's parts.
    [[nodiscard]] part_credits& parts_of(const exchange_state& call) noexcept { return parts_[call.slot]; }
    /// Hands a part to the link, or room that is given back. `again`: try later.
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
    [[nodiscard]] std::uint32_t open() const noexcept { return open_; }
    /// Any thread: the client is gone, answers go nowhere.
    [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }
    void set_gone() noexcept {
        gone_.store(true, std::memory_order_relaxed);
        cancels_->end();
        for (part_credits& each : parts_) each.wake();
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
    [[nodiscard]] bool start_parts(std::uint32_t slot, std::uint32_t generation) noexcept;
    [[nodiscard]] std::span<std::byte> part_room(std::uint32_t slot) const noexcept;
    void write_header(const exchange_state& answered, nanoseconds at) const noexcept;
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
    std::vector<part_credits> parts_;  ///< by the slot of the call
    const std::shared_ptr<cancel_board> cancels_;
    std::vector<std::unique_ptr<own_memory>> own_;
    scheme_series* series_ = nullptr;
    std::uint32_t open_ = 0;
    std::atomic<bool> gone_{false};
};

}  // namespace accel::core
