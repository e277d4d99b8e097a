// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstdint>

#if !defined(__CUDA_ARCH__)
#include <ctime>
#endif

namespace accel::device {

/// Nanoseconds of the GPU's clock in a kernel, of CLOCK_MONOTONIC on the host. Only differences are meaningful.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::int64_t clock_ns() noexcept {
#if defined(__CUDA_ARCH__)
    std::int64_t now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
#else
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
#endif
}

/// Yields this processor to other threads for a moment, in a loop that waits.
ACCEL_HOST_DEVICE inline void pause() noexcept {
#if defined(__CUDA_ARCH__)
    __nanosleep(100);
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace accel::device
