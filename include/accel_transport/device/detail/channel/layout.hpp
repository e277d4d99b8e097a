// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/device/detail/engine.hpp>
#include <accel_transport/device/detail/host_clock_sync.hpp>
#include <accel_transport/device/detail/slots_layout.hpp>

#include <cstdint>

/// The memory layout of a GPU-resident channel: the kernels' state, commands from the host, and the kernels'
/// report. Not for applications, which use `channel_ref`.
namespace accel::device::detail {

/// The phase of a call. With the generation above it this is one word, so that the holder of an ended call
/// changes nothing.
enum class call_phase : std::uint32_t {
    free,
    begun,        ///< its holder writes the request
    in_flight,    ///< submitted
    arrived,      ///< its response is there, and nobody has looked at it
    ended,        ///< its holder reads the response, or knows why there is none
    overdue,      ///< the same, but the server still has to answer, and may write into the slot
    quarantined,  ///< likewise, and it has no holder any more
    // Calls whose response comes in parts, and the slots of their parts (`client_parts.hpp`).
    in_parts,       ///< as `in_flight`
    parts_arrived,  ///< as `arrived`: the response that ends the parts is there
    lent,           ///< to the server, as room for a part of another call's response
    room_arrived,   ///< it has come back, with a part or without, and nobody has looked at it
    part,           ///< its part has been handed out
    returning,      ///< as `lent`, but its call has ended
};

/// One slot of a channel.
struct call_entry {
    std::uint64_t word = 0;  ///< generation, `call_phase`
    std::uint32_t next = 0;  ///< while it is free: the next free slot
    std::uint32_t reserved = 0;
};
inline constexpr std::uint32_t no_call = 0xffff'ffffU;

/// In place of a status: the server drains. Calls in flight are answered, and no others begin.
inline constexpr std::uint32_t going_away = 0xffff;

/// Written by the host.
struct channel_orders {
    std::uint32_t ended = 0;       ///< a `status`: the session is over, and why; or `going_away`
    std::uint32_t clock_tick = 0;  ///< counts, after `clock_ns` has been written
    std::int64_t clock_ns = 0;     ///< the server's clock, now and then
};

/// Written by kernels.
struct channel_report {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;  ///< answered by the server
    std::uint64_t ended_early = 0;
    std::uint64_t stale = 0;  ///< responses of calls that had ended
    std::uint32_t quarantined = 0;
    std::uint32_t clock_seen = 0;      ///< the last `clock_tick`
    std::uint32_t failure = 0;         ///< a `status`, 16 bits, and above it the first syndrome: it is over
    std::uint32_t kernel_version = 0;  ///< other than 0: of a kernel that was compiled with another version
    std::uint32_t cancels = 0;         ///< changes after each word of `channel_ref::cancels`
    std::uint32_t reserved = 0;
};

/// Used receives and completion entries are given back in batches of this size.
inline constexpr std::uint32_t responses_at_once = 16;

/// Shared by all threads that use a channel.
struct channel_state {
    std::uint64_t free = 0;     ///< a stack of slots: the first one, and above it a count of all changes
    std::uint32_t failure = 0;  ///< as in the report, or `going_away`
    // Counters.
    std::uint32_t quarantined = 0;
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::uint64_t ended_early = 0;
    std::uint64_t stale = 0;
    std::uint32_t cancels = 0;  ///< as in the report

    std::uint32_t lock = 0;            ///< of all that follows
    std::uint32_t empty_looks = 0;     ///< one after another
    std::uint32_t responses_owed = 0;  ///< places, and `direct` receives, to be given back
    std::uint32_t looks_at_end = 0;    ///< at commands from the host, since they say that the session is over
    std::uint32_t tick_looked_at = 0;
    std::uint32_t clock_seen = 0;  ///< the last tick that was of use; 0: none yet
    std::int64_t last_look = 0;    ///< at commands from the host
    std::int64_t clock_set_at = 0;
    std::int64_t clock_offset = unknown_offset;  ///< from `clock_ns` to the server's clock
    mlx5::completion_queue_state completions;
    proxy::completion_queue_state proxied_completions;
    mlx5::shared_receive_queue_ref receives;     ///< `engine::direct`
    std::uint16_t owed[responses_at_once] = {};  ///< … that were used
};

}  // namespace accel::device::detail
