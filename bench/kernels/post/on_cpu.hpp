// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan.hpp"
#include "rings.hpp"

#include <cstddef>
#include <vector>

namespace accel::bench {

/// A send queue in plain memory.
struct cpu_ring {
    explicit cpu_ring(std::uint32_t queue_pair);
    cpu_ring(const cpu_ring&) = delete;
    cpu_ring& operator=(const cpu_ring&) = delete;

    std::vector<std::byte> ring;
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state state;
    mlx5::send_queue_ref queue;
};

/// Number of the n-th queue's queue pair.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint32_t queue_pair_of(std::uint32_t queue) noexcept {
    return 0x1000 + queue;
}
/// What is carried; `plan.payload` for the CPU.
[[nodiscard]] const std::vector<std::byte>& carried_bytes();
inline constexpr std::uint32_t max_carried = 512;

[[nodiscard]] post_plan plan_of(const post_case& what);
/// Posts all of a plan.
void post_on_cpu(cpu_ring& to, const post_plan& plan, bool carried) noexcept;
/// So many requests that posting them takes about so long, a multiple of the batch.
[[nodiscard]] std::uint64_t requests_for(double milliseconds, double ns_per_request, std::uint32_t batch);

}  // namespace accel::bench
