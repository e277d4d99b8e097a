// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/send_queue.hpp>

#include <cstdint>

namespace accel::tests {

enum class gpu_scope : std::uint8_t { thread, warp, block };

/// A block of x × y × z threads posts one batch, `times` times, and gives its ring back in between. The
/// thread of rank r has r % 3 requests, those at `requests` behind those of the ranks below it. `outcomes`
/// has a place for each thread. All are memory that host and GPU share; true when the kernel has ended well.
struct together {
    gpu_scope who = gpu_scope::thread;
    std::uint32_t x = 1, y = 1, z = 1;
    std::uint32_t times = 1;
    mlx5::send_queue_ref queue;
    const mlx5::work_request* requests = nullptr;
    status* outcomes = nullptr;
};
[[nodiscard]] bool post_together(const together& what);

/// Requests of the ranks below.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint32_t requests_below(std::uint32_t rank) noexcept {
    return rank / 3 * 3 + (rank % 3 == 2 ? 1 : 0);
}

/// Zeroed memory that host and GPU share at one address; null without a GPU.
[[nodiscard]] void* shared_with_gpu(std::size_t bytes);
void free_shared(void* memory) noexcept;

}  // namespace accel::tests
