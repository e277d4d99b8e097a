// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace accel::core {

using std::chrono::nanoseconds;

/// The host's monotonic clock (CLOCK_MONOTONIC): the same in every process of a host.
[[nodiscard]] inline nanoseconds now() noexcept {
    // As `steady_clock::now`, without its extra call.
    timespec read;
    ::clock_gettime(CLOCK_MONOTONIC, &read);
    return nanoseconds{std::int64_t{read.tv_sec} * 1'000'000'000 + read.tv_nsec};
}

/// A point on `now()`'s axis that is never reached.
inline constexpr nanoseconds never = nanoseconds::max();

/// `now() + timeout`, saturating at `never`.
[[nodiscard]] inline nanoseconds deadline_after(nanoseconds timeout) noexcept {
    const nanoseconds start = now();
    return timeout >= never - start ? never : start + timeout;
}

}  // namespace accel::core
