// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/slot_header.hpp>
#include <accel_transport/device/detail/engine.hpp>
#include <accel_transport/device/detail/host_clock_sync.hpp>
#include <accel_transport/device/detail/service/part_slots.hpp>
#include <accel_transport/device/detail/slots_layout.hpp>

#include <cstddef>
#include <cstdint>

/// A GPU-resident service, as it lies in memory. Three places: what only kernels touch (the GPU's
/// memory), what the host tells kernels and what kernels tell the host (the host's memory, pinned). None of
/// it is for applications, which use `service_ref`.
namespace accel::device::detail {

/// The host's description of a session that it will open. Stays as it is while the session is open.
struct session_offer {
    std::uint64_t id = 0;
    std::uint32_t slots = 0;
    slots_layout requests;
    slots_layout responses;
    peer_slots_layout peer;
};

/// How its answers travel, for the proxy.
[[nodiscard]] inline proxy::answer_way answer_way_of(const session_offer& offer) noexcept {
    proxy::answer_way out;
    out.headers = reinterpret_cast<std::uint64_t>(offer.responses.headers);
    out.stride = offer.responses.stride;
    out.key = offer.responses.key;
    out.slots = offer.slots;
    out.longest = wire::header_bytes + offer.responses.capacity;
    out.peer_headers = offer.peer.headers;
    out.peer_stride = offer.peer.headers_stride;
    out.peer_key = offer.peer.headers_key;
    out.plain = offer.peer.plain;
    return out;
}

/// The host's requests to the kernels.
enum class command_kind : std::uint32_t { none, open, close };

/// The host's commands to the service, taken in order. `number` counts from 1 and is written last.
struct command {
    std::uint32_t number = 0;
    command_kind kind = command_kind::none;
    std::uint32_t session = 0;  ///< index
    std::uint32_t reserved = 0;
};

/// Written by the host.
struct orders_layout {
    std::uint32_t stop = 0;
    std::uint32_t clock_tick = 0;  ///< counts, after `clock_ns` has been written
    std::int64_t clock_ns = 0;     ///< the host's clock, now and then
    std::uint32_t commands = 0;    ///< how many the host has given
    std::uint32_t reserved = 0;
};

/// Written by kernels.
struct report_layout {
    std::uint64_t requests = 0;        ///< handed to the service
    std::uint64_t replies = 0;         ///< posted
    std::uint64_t expired = 0;         ///< too late on arrival
    std::uint64_t dropped = 0;         ///< of clients that were gone, or broke the protocol
    std::uint32_t clock_seen = 0;      ///< the last `clock_tick`
    std::uint32_t kernel_version = 0;  ///< other than 0: of a kernel that was compiled with another version
};
/// Written by kernels, one per session. Its first two words begin anew with each session.
struct session_report {
    std::uint32_t closed = 0;   ///< number of the command that closed it, once nothing of it is in use
    std::uint32_t failure = 0;  ///< a `status`, 16 bits, and above it the first syndrome: it is of no more use
    // Sums over all sessions of the place; only where its queues have one owner.
    std::uint64_t requests = 0;
    std::uint64_t replies = 0;
    std::uint64_t expired = 0;
    std::uint64_t dropped = 0;
};

/// Where a session stands, for kernels.
enum class session_phase : std::uint32_t {
    none,
    open,
    failed,   ///< takes and sends nothing more; the host has been told
    closing,  ///< likewise, and ends with its last exchange
};

/// A session, in the memory of those who serve it.
struct session_entry {
    send_port sends;                       ///< the same for all sessions of this index
    std::uint32_t* generations = nullptr;  ///< one per slot: of the last request
    std::uint32_t* busy = nullptr;         ///< one per slot: 1 from its arrival to its answer
    part_slot* parts = nullptr;            ///< one per slot
    session_offer is;
    std::uint32_t phase = 0;  ///< of `session_phase`
    std::uint32_t open = 0;   ///< arrivals that have been taken, and are not ended
    std::uint32_t closing_number = 0;
};

/// The session of a queue pair, or `no_session`. The proxy tells of sessions by their index.
struct alignas(8) session_number {
    std::uint32_t queue_pair = 0;
    std::uint32_t session = 0;
};
inline constexpr std::uint32_t no_session = 0xffff'ffffU;

/// A request that has arrived.
struct ready_entry {
    std::uint32_t session = 0;
    std::uint32_t slot = 0;
    std::uint32_t released = 0;  ///< of its session's send queue; `engine::direct`
    std::uint32_t reserved = 0;
    std::int64_t arrival = 0;  ///< by `clock_ns`
};

/// Receives that arrivals have used up are given back in batches of this size.
inline constexpr std::uint32_t arrivals_at_once = 16;

/// The state that all threads of a service share.
struct service_state {
    std::uint32_t lock = 0;  ///< of all that follows
    std::uint32_t ready_head = 0;
    std::uint32_t ready_tail = 0;
    std::uint32_t ready_seen = 0;  ///< those before it are requests; none from `ready_head` on are rooms
    std::uint32_t commands_taken = 0;
    std::uint32_t empty_looks = 0;  ///< one after another
    std::uint32_t stopping = 0;
    std::uint32_t closing = 0;        ///< sessions
    std::uint32_t arrivals_owed = 0;  ///< places, and `direct` receives, to be given back
    std::uint32_t tick_looked_at = 0;
    std::uint32_t clock_seen = 0;  ///< the last tick that was of use; 0: none yet
    std::int64_t last_look = 0;
    std::int64_t clock_set_at = 0;
    std::int64_t clock_offset = unknown_offset;  ///< from `clock_ns` to the clock that deadlines are on
    mlx5::completion_queue_state completions;
    proxy::completion_queue_state proxied_completions;
    mlx5::shared_receive_queue_ref receives;    ///< `engine::direct`
    std::uint16_t owed[arrivals_at_once] = {};  ///< … that were used
    // Not under the lock.
    std::uint64_t requests = 0;
    std::uint64_t replies = 0;
    std::uint64_t expired = 0;
    std::uint64_t dropped = 0;
    std::uint32_t failures = 0;  ///< sessions that were open
    std::uint32_t reserved = 0;
};

}  // namespace accel::device::detail
