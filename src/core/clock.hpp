// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tick_scale.hpp"

#include <chrono>
#include <cstdint>
#include <ctime>

namespace accel::core {

using std::chrono::nanoseconds;

/// CLOCK_MONOTONIC, read from the kernel.
[[nodiscard]] inline nanoseconds kernel_now() noexcept {
    // As `steady_clock::now`, without its extra call.
    timespec read;
    ::clock_gettime(CLOCK_MONOTONIC, &read);
    return nanoseconds{std::int64_t{read.tv_sec} * 1'000'000'000 + read.tv_nsec};
}

#if defined(__x86_64__)

/// Initial-exec: one load, also from a shared library.
#ifndef __CUDACC__  // nvcc refuses it here
[[gnu::tls_model("initial-exec")]]
#endif
inline constinit thread_local tick_scale ticks_of_this_thread;
/// Sets the scale as well, where the kernel keeps time by the same counter.
[[nodiscard]] nanoseconds read_kernel_clock() noexcept;
/// Before threads read the clock: it is the C library's alone, which a test has replaced.
void count_no_ticks() noexcept;

/// The host's monotonic clock (CLOCK_MONOTONIC): the same in every process of a host, to within 2 µs. It never goes
/// back within a thread. Most reads count the processor's ticks since the last one of the kernel's clock: that takes
/// less than half as long, and loads that are under way go on beside it.
[[nodiscard]] inline nanoseconds now() noexcept {
    const tick_scale& scale = ticks_of_this_thread;
    if (scale.known()) [[likely]] {
        const std::uint64_t passed = scale.passed_at(__builtin_ia32_rdtsc());
        if (scale.holds_for(passed)) [[likely]]
            return nanoseconds{scale.nanoseconds_after(passed)};
    }
    return read_kernel_clock();
}

#else

inline void count_no_ticks() noexcept {}
/// The host's monotonic clock (CLOCK_MONOTONIC): the same in every process of a host.
[[nodiscard]] inline nanoseconds now() noexcept {
    return kernel_now();
}

#endif

/// A point on `now()`'s axis that is never reached.
inline constexpr nanoseconds never = nanoseconds::max();

/// `now() + timeout`, saturating at `never`.
[[nodiscard]] inline nanoseconds deadline_after(nanoseconds timeout) noexcept {
    const nanoseconds start = now();
    return timeout >= never - start ? never : start + timeout;
}

}  // namespace accel::core
