// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/channel/layout.hpp>
#include <accel_transport/device/detail/host_clock_sync.hpp>
#include <accel_transport/device/detail/service/exclusive_layout.hpp>

#include <cstdint>

/// A channel that one thread, warp or block owns, as it lies in the kernels' memory. Its owner alone touches it, so
/// nothing here is atomic.
namespace accel::device::detail {

/// A slot, as the owner sees it. Read whole by one load.
struct alignas(16) owned_call {
    std::uint32_t generation = 0;         ///< of the last call
    call_phase phase = call_phase::free;  ///< other than `arrived`
    std::uint32_t next = no_call;         ///< while it is free: the next free slot
    std::uint32_t torn = 0;               ///< how often the response to the last call was not seen whole
};

/// The part of a slot's requests that is known beforehand.
struct alignas(16) prepared_call {
    prepared_header header;
    mlx5::remote_segment payload_to{};  ///< where the server wants payloads, if that is not after their headers
    mlx5::be64 payload_address{};       ///< of the payload, for the adapter
    std::uint64_t reserved = 0;
};
static_assert(sizeof(prepared_call) == 80);

/// As in the report.
struct channel_counters {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::uint64_t ended_early = 0;
    std::uint64_t stale = 0;
    std::uint32_t quarantined = 0;
    std::uint32_t cancels = 0;
};

/// The state that changes from call to call. The owner has a copy, and writes every change of it here as well, so that
/// the next kernel finds it.
struct exclusive_state : owned_sends {
    channel_counters counters;
    std::uint32_t first_free = no_call;
    std::uint32_t failure = 0;  ///< as in the report, or `going_away`
};

/// The channel, and what its owner uses of it.
struct exclusive_channel {
    exclusive_state state;
    host_clock_state clock;
    mlx5::completion_queue_ref completions;  ///< of sends only; `engine::direct`
    mlx5::completion_queue_state completions_state;
    proxy::send_queue_ref proxied;  ///< `engine::proxy`, instead of both; without its `state`
};

/// Where all of it lies.
struct exclusive_channel_ref {
    exclusive_channel* channel = nullptr;  ///< null: the channel is shared
    owned_call* calls = nullptr;
    const prepared_call* prepared = nullptr;
    std::uint32_t slots = 0;  ///< instead of the channel's
    engine by = engine::direct;
    mlx5::queue_place queues = mlx5::queue_place::host;  ///< gpu: the slots are there too
};

/// The owner has this number of slots, the first ones, at hand.
inline constexpr std::uint32_t max_calls_at_hand = 8;

}  // namespace accel::device::detail
