#pragma once

#include <chrono>
#include <cstdint>

namespace accel::core {

using std::chrono::nanoseconds;

/// The host's monotonic clock (CLOCK_MONOTONIC): the same in every process of a host.
[[nodiscard]] inline nanoseconds now() noexcept {
    return std::chrono::steady_clock::now().time_since_epoch();
}

/// A point on `now()`'s axis that is never reached.
inline constexpr nanoseconds never = nanoseconds::max();

/// `now() + timeout`, saturating at `never`.
[[nodiscard]] inline nanoseconds deadline_after(nanoseconds timeout) noexcept {
    const nanoseconds start = now();
    return timeout >= never - start ? never : start + timeout;
}

}  // namespace accel::core
