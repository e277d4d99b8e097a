// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tick_scale.hpp"

#include <chrono>
#include <cstdint>
#include <ctime>

namespace accel::core {

using std::chrono::nanoseconds;

/// CLOCK_MONOTONIC, read from the OS.
[[nodiscard]] inline nanoseconds kernel_now() noexcept {
    // As `steady_clock::now`, without its extra call.
    timespec read;
    ::clock_gettime(CLOCK_MONOTONIC, &read);
    return nanoseconds{std::int64_t{read.tv_sec} * 1'000'000'000 + read.tv_nsec};
}

#if defined(__x86_64__)

/// Sets the scale as well, where the OS keeps time by the same counter.
[[nodiscard]] nanoseconds read_kernel_clock(tick_scale& scale) noexcept;
/// Before threads read the clock: it is the C library's alone, which a test has replaced.
void count_no_ticks() noexcept;

/// The host's monotonic clock (CLOCK_MONOTONIC), for one thread at a time: the same in every process of a host, to
/// within 2 µs. It never goes back. Most reads count the processor's ticks since the last one of the OS's clock:
/// that takes less than half as long, and loads that are under way go on beside it.
class ticking_clock {
  public:
    [[nodiscard]] nanoseconds now() noexcept {
        if (scale_.known()) [[likely]] {
            const std::uint64_t passed = scale_.passed_at(__builtin_ia32_rdtsc());
            if (scale_.holds_for(passed)) [[likely]]
                return nanoseconds{scale_.nanoseconds_after(passed)};
        }
        return read_kernel_clock(scale_);
    }

  private:
    tick_scale scale_;
};

#else

inline void count_no_ticks() noexcept {}

class ticking_clock {
  public:
    [[nodiscard]] static nanoseconds now() noexcept { return kernel_now(); }
};

#endif

inline constinit thread_local ticking_clock clock_of_this_thread;

/// The calling thread's `ticking_clock`. Where the data path reads it, whoever works there has one of its own: in a
/// library that is loaded later, a thread's variable takes a call.
[[nodiscard]] inline nanoseconds now() noexcept {
    return clock_of_this_thread.now();
}

/// A point on `now()`'s axis that is never reached.
inline constexpr nanoseconds never = nanoseconds::max();

/// `now() + timeout`, saturating at `never`.
[[nodiscard]] inline nanoseconds deadline_after(nanoseconds timeout) noexcept {
    const nanoseconds start = now();
    return timeout >= never - start ? never : start + timeout;
}

}  // namespace accel::core
