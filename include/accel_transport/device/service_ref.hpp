// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/layout_version.hpp>
#include <accel_transport/device/detail/service/exclusive_layout.hpp>
#include <accel_transport/device/detail/service/layout.hpp>

#include <cstddef>
#include <cstdint>

/// The arguments of a service's kernels: the service, and each request.
namespace accel::device {

/// A service as kernels see it, passed by value. Owns nothing; valid until the service has stopped.
struct service_ref {
    detail::layout_stamp layout;
    detail::service_state* state = nullptr;
    detail::session_entry* sessions = nullptr;
    std::uint32_t session_count = 0;
    const detail::session_number* numbers = nullptr;  ///< hash table with linear probing; `engine::direct` only
    std::uint32_t numbers_mask = 0;
    detail::ready_entry* ready = nullptr;  ///< a ring with room for every receive
    std::uint32_t ready_mask = 0;
    detail::completion_port completions;  ///< its engine is the service's engine
    const detail::orders_layout* orders = nullptr;
    const detail::command* commands = nullptr;  ///< a ring
    std::uint32_t command_mask = 0;
    const detail::session_offer* offers = nullptr;
    detail::report_layout* report = nullptr;
    detail::session_report* session_reports = nullptr;
    /// Written by the host, one row per session: for each slot the generation of the last cancelled call, then one word
    /// that is not 0 once the client has disconnected.
    const std::uint32_t* cancels = nullptr;
    std::uint32_t cancels_of_session = 0;
    detail::exclusive_ref exclusive;  ///< with `service_sharing::exclusive`; `state` is then null
};

/// The sessions of a service that one thread, warp or block owns (`own`). One object per scope, in shared memory for a
/// warp or a block. No other thread may use it. All members are internal: the sessions, and the owner's copies of their
/// state.
struct owned_sessions {
    detail::exclusive_ref at;
    std::uint32_t session_count = 0;  ///< of the service
    std::uint32_t first = 0;          ///< the owner's first session
    std::uint32_t step = 1;           ///< … and the distance to the next one
    std::uint32_t count = 0;          ///< number of the owner's sessions
    std::uint32_t places = 0;         ///< for their slots; some are unused
    std::uint32_t next = 0;           ///< where the next search begins
    std::uint32_t stopping = 0;
    std::uint32_t last = 0;  ///< the session answered last
    std::uint32_t orders_seen = 0;
    std::uint32_t checked = 0;                     ///< next session to check for completions
    std::uint32_t at_hand = detail::none_at_hand;  ///< the place whose copies are below, or `all_at_hand`
    std::int64_t orders_due = 0;                   ///< when to read commands from the host again, by `clock_ns`
    detail::host_clock_state clock;
    const detail::orders_layout* orders = nullptr;
    const detail::session_offer* offers = nullptr;
    detail::report_layout* report = nullptr;
    detail::session_report* session_reports = nullptr;
    // Copies. Unless all places are at hand, the first element of each array belongs to the place at hand.
    detail::owned_slot slots[detail::max_at_hand];
    detail::session_view sessions[detail::max_at_hand];
};

/// One request, as a kernel sees it. Plain data: keep it in a register, or in shared memory for a block.
/// Belongs to the service until `reply` or `fail`; the kernel must call one of them.
struct exchange_ref {
    const std::byte* request = nullptr;  ///< in place, 8-byte aligned at least; bytes of an untrusted peer
    std::uint64_t request_bytes = 0;
    std::byte* response = nullptr;  ///< room for the response, to be written in place
    std::uint64_t response_room = 0;
    std::uint64_t trace_id = 0;
    std::uint64_t session_id = 0;
    std::int64_t deadline = 0;        ///< of the client, by `clock_ns`
    std::uint32_t target_number = 0;  ///< `target_of(name).number`; 0: no target
    // Internal: where the request came from.
    std::int64_t arrival = 0;
    std::uint32_t session = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    wire::response_target target;
    // For the answer; read together when the request is taken. The next two: `engine::direct` only.
    mlx5::shared_send_queue_ref sends;
    mlx5::counter_snapshot seen;
    std::uint32_t* busy = nullptr;
    std::int64_t clock_offset = detail::unknown_offset;
    std::uint32_t response_key = 0;
    detail::peer_slots_layout peer;
    // With `service_sharing::exclusive`.
    std::uint32_t at_hand = 0;  ///< the owner's `at_hand` when its copies of this slot were made
    std::uint32_t slot_copy = 0;
    std::uint32_t session_copy = 0;
    std::uint32_t touched = 0;  ///< of prefetched words; has no meaning
    // Responses in parts.
    detail::part_slot* parts = nullptr;  ///< of the session, one per slot; null: the client takes no parts
};

/// Room for the next part of a response (`next_part`), in the memory from which it is sent.
struct part_ref {
    std::byte* bytes = nullptr;  ///< to be written in place, 8-byte aligned at least
    std::uint64_t room = 0;      ///< bytes
};

}  // namespace accel::device
