// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::bench {

/// Nanoseconds of a clock that all processors of a GPU share.
__device__ inline unsigned long long gpu_nanoseconds() noexcept {
    unsigned long long now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/// When a kernel gives up, whoever asks.
struct kernel_bounds {
    unsigned long long longest_ns = 0;
    const std::uint32_t* abort = nullptr;  ///< pinned; not 0: now
};

__device__ inline bool is_over(const kernel_bounds& bounds, unsigned long long since) noexcept {
    return gpu_nanoseconds() - since > bounds.longest_ns ||
           *const_cast<const volatile std::uint32_t*>(bounds.abort) != 0;
}

}  // namespace accel::bench
