// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/cancel_board.hpp"
#include "core/control/session.hpp"
#include "core/server/device_work.hpp"
#include "core/server/exchange_state.hpp"
#include "core/server/lendable_slots.hpp"
#include "core/server/part_credits.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
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
    session(const session&) = delete;
    session& operator=(const session&) = delete;

    /// Checks an arrived message against this session. Null: the peer broke the protocol.
    [[nodiscard]] exchange_state* admit(const link_event& event) noexcept;
    /// The same for what `admit` does not know: a request whose response may come in parts.
    [[nodiscard]] exchange_state* admit_in_parts(const link_event& event) noexcept;
    /// … and room for a part. False: the peer broke the protocol.
    [[nodiscard]] bool take_room(const link_event& event, nanoseconds at) noexcept;
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
    /// The same for a session that kernels serve: it has no data path, and nothing arrives here.
    void set_connection(std::unique_ptr<connection> made) noexcept { connection_ = std::move(made); }
    [[nodiscard]] core::connection& connection() const noexcept { return *connection_; }
    [[nodiscard]] link& path() const noexcept { return *path_; }
    /// Its slots, for channels that lend them. Any thread.
    [[nodiscard]] lendable_slots& lends() noexcept { return lends_; }
    /// Closes the connection. True: the transport touches nothing of this session any more. Handlers may.
    [[nodiscard]] bool close();
    /// Once, after `set_link`: its handler wants its bytes on a GPU.
    void put_on_device(device_session place);
    /// Null: they are on the host.
    [[nodiscard]] const device_session* on_device() const noexcept { return device_.get(); }
    std::size_t memory_bytes = 0;
    [[nodiscard]] std::size_t gpu_memory_bytes() const noexcept;
    /// Once, before the session is installed: where its calls without a target count.
    void count_in(server_series* series) noexcept;
    [[nodiscard]] server_series* counts() const noexcept { return counts_; }

  private:
    void part_from_client(recall how);
    void end_extras(exchange_state& answered) noexcept;
    void end_parts(exchange_state& answered) noexcept;
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
    server_series* counts_ = nullptr;  ///< null: nothing is counted
    std::uint32_t open_ = 0;
    std::atomic<bool> gone_{false};
};

// On every request's way, in order of execution.

inline exchange_state* session::admit(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_well_formed(header, message_kind::request) && header.slot < geometry_.slots &&
                      header.length <= geometry_.request_bytes && event.payload.size() == header.length &&
                      header.response_room <= geometry_.response_bytes;
    if (!sane) [[unlikely]]
        return nullptr;
    exchange_state& exchange = exchanges_[header.slot];
    // A slot is reused only after its answer, with another generation.
    if (exchange.phase != exchange_phase::idle || exchange.generation == header.generation) [[unlikely]]
        return nullptr;

    exchange.phase = exchange_phase::open;
    static_assert(exchange_extra::borrowed == 1);
    exchange.extras = static_cast<std::uint8_t>(event.borrowed);
    exchange.generation = header.generation;
    exchange.trace_id = header.trace_id;
    exchange.deadline = nanoseconds{header.deadline_ns};
    exchange.request = event.payload;
    std::span<std::byte> room{exchange.header + header_bytes, answer_bytes_};
    if (!event.response_room.empty()) [[unlikely]]
        room = event.response_room;
    exchange.response_room = room.first(std::min<std::size_t>(room.size(), header.response_room));
    exchange.answer = {};
    ++open_;
    return &exchange;
}

inline void session::write_header(const exchange_state& answered, nanoseconds at) const noexcept {
    auto& header = *new (answered.header) slot_header;
    header.kind = message_kind::response;
    header.slot = answered.slot;
    header.generation = answered.generation;
    header.code = answered.answer.code;
    header.length = answered.payload.size();
    header.trace_id = answered.trace_id;
    header.server_ticks = to_ticks(at - answered.arrival);
    header.application_code = answered.answer.application_code;
    header.arrival_ns = answered.arrival.count();
    header.queue_ticks = to_ticks(answered.handler_start - answered.arrival);
    if (!answered.answer.counts_apart) [[likely]]
        return;  // nothing was recorded
    const auto& stages = answered.answer.stages;
    header.copy_ticks = to_ticks(stages[static_cast<std::size_t>(stage::copy)]);
    header.preprocessing_ticks = to_ticks(stages[static_cast<std::size_t>(stage::preprocessing)]);
    header.inference_ticks = to_ticks(stages[static_cast<std::size_t>(stage::inference)]);
}

inline status session::send(exchange_state& answered, nanoseconds at) noexcept {
    const bool plain = answered.answer.lent == nullptr && answered.extras == 0;
    if (!plain) [[unlikely]]
        return send_with_extras(answered, at);
    write_header(answered, at);
    return path_->deliver_plain(answered.slot, answered.payload);
}

inline void session::finish(exchange_state& answered) noexcept {
    if (answered.leases != nullptr || answered.ends.load(std::memory_order_relaxed) != 0) [[unlikely]]
        end_extras(answered);
    answered.phase = exchange_phase::idle;
    --open_;
}

}  // namespace accel::core
