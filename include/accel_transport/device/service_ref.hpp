// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/layout_version.hpp>
#include <accel_transport/device/detail/service/exclusive_layout.hpp>
#include <accel_transport/device/detail/service/layout.hpp>

#include <cstddef>
#include <cstdint>

/// The arguments of a service's kernels: the service, and each request.
namespace accel::device {

/// A service as its kernels see it; passed to them by value. Owns nothing: it is good until the service has
/// been stopped.
struct service_ref {
    detail::layout_stamp layout;
    detail::service_state* state = nullptr;
    detail::session_entry* sessions = nullptr;
    std::uint32_t session_count = 0;
    const detail::session_number* numbers = nullptr;  ///< a hash table with linear probing; `engine::direct`
    std::uint32_t numbers_mask = 0;
    detail::ready_entry* ready = nullptr;  ///< a ring, with room for every receive
    std::uint32_t ready_mask = 0;
    detail::completion_port completions;  ///< whose engine is the service's
    const detail::orders_layout* orders = nullptr;
    const detail::command* commands = nullptr;  ///< a ring
    std::uint32_t command_mask = 0;
    const detail::session_offer* offers = nullptr;
    detail::report_layout* report = nullptr;
    detail::session_report* session_reports = nullptr;
    /// Written by the host, a row a session: the generation of the last call that was cancelled, one a slot, and other
    /// than 0 behind them when the client has left.
    const std::uint32_t* cancels = nullptr;
    std::uint32_t cancels_of_session = 0;
    detail::exclusive_ref exclusive;  ///< `service_sharing::exclusive`, which has no `state`
};

/// The sessions of a service that one thread, warp or block owns (`own`): an object of its scope, in shared
/// memory for a warp or a block. Nobody else may use it.
struct owned_sessions {
    // Internal.
    detail::exclusive_ref at;
    std::uint32_t session_count = 0;  ///< of the service
    std::uint32_t first = 0;          ///< the owner's first session
    std::uint32_t step = 1;           ///< … and how far it is to the next
    std::uint32_t count = 0;          ///< how many it has
    std::uint32_t places = 0;         ///< for their slots, some of which are not used
    std::uint32_t next = 0;           ///< where the next look begins
    std::uint32_t stopping = 0;
    std::uint32_t last = 0;  ///< the session answered last
    std::uint32_t orders_seen = 0;
    std::uint32_t checked = 0;                     ///< the session whose completions are looked at next
    std::uint32_t at_hand = detail::none_at_hand;  ///< the place that is at hand, or `all_at_hand`
    std::int64_t orders_due = 0;                   ///< by `clock_ns`
    detail::host_clock_state clock;
    const detail::orders_layout* orders = nullptr;
    const detail::session_offer* offers = nullptr;
    detail::report_layout* report = nullptr;
    detail::session_report* session_reports = nullptr;
    // Copies; if not all are at hand, the first of each is that of the place that is.
    detail::owned_slot slots[detail::max_at_hand];
    detail::session_view sessions[detail::max_at_hand];
};

/// One request, as a kernel has it. Plain data: keep it in a register, or in shared memory for a block.
/// Belongs to the service until `reply` or `fail`, and has to be ended by one of them.
struct exchange_ref {
    const std::byte* request = nullptr;  ///< in place, 8-byte aligned at least; bytes of an untrusted peer
    std::uint64_t request_bytes = 0;
    std::byte* response = nullptr;  ///< room for the response, to be written in place
    std::uint64_t response_room = 0;
    std::uint64_t trace_id = 0;
    std::uint64_t session_id = 0;
    std::int64_t deadline = 0;        ///< by `clock_ns`: the client gives up
    std::uint32_t target_number = 0;  ///< what the request names: `target_of(name).number`; 0: nothing
    // Internal.
    std::int64_t arrival = 0;
    std::uint32_t session = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    wire::response_target target;
    /// For the answer; all of it is read at once when the request is taken. The next two: `engine::direct`.
    mlx5::shared_send_queue_ref sends;
    mlx5::counter_snapshot seen;
    std::uint32_t* busy = nullptr;
    std::int64_t clock_offset = detail::unknown_offset;
    std::uint32_t response_key = 0;
    detail::peer_slots_layout peer;
    // Where sessions have one owner.
    std::uint32_t at_hand = 0;  ///< of the owner, when its slot's copies were
    std::uint32_t slot_copy = 0;
    std::uint32_t session_copy = 0;
    std::uint32_t touched = 0;  ///< of no meaning
    // Responses in parts.
    detail::part_slot* parts = nullptr;  ///< of its session, one a slot; null: its client takes none
};

/// Room for the next part of a response, in the memory that it leaves from (`next_part`).
struct part_ref {
    std::byte* bytes = nullptr;  ///< to be written in place, 8-byte aligned at least
    std::uint64_t room = 0;      ///< bytes
};

}  // namespace accel::device
