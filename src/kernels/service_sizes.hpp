// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/gpu_options.hpp>

#include <cstddef>
#include <cstdint>

namespace accel::gpu {

/// The sizes of a service; they do not change while kernels run.
struct service_sizes {
    std::uint32_t sessions = 0;
    std::uint32_t slots = 0;  ///< of a session, at most
    std::size_t request_stride = 0;
    std::size_t response_stride = 0;
    bool host_slots = false;  ///< in the host's memory, though kernels of a GPU work with them
    bool exclusive = false;   ///< each session has one owner
    queue_location queues = queue_location::automatic;  ///< of an exclusive service

    /// Requests that are under way, of all sessions together.
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return sessions * slots; }
    /// Arrivals that a queue has room for.
    [[nodiscard]] std::uint32_t receives() const noexcept {
        constexpr std::uint32_t least = 64;
        return in_flight() * 2 > least ? in_flight() * 2 : least;
    }
    /// Work requests of a session: a response may take two, and requests without a completion take room too.
    [[nodiscard]] std::uint32_t sends() const noexcept {
        // An owner reads completions, across the bus, once in a quarter of the ring.
        const std::uint32_t least = exclusive ? 256 : 64;
        return slots * 4 > least ? slots * 4 : least;
    }
};

}  // namespace accel::gpu
