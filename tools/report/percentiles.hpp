// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <span>
#include <vector>

namespace accel::report {

/// The value below or at which `percent` (0 … 100) of the samples lie, by nearest rank. `sorted` ascends and
/// may be empty (then 0).
[[nodiscard]] std::chrono::nanoseconds percentile(std::span<const std::chrono::nanoseconds> sorted,
                                                  double percent) noexcept;

struct latency_summary {
    std::chrono::nanoseconds p50{}, p90{}, p99{}, p99_9{}, max{};
};

[[nodiscard]] latency_summary summarise(std::vector<std::chrono::nanoseconds> samples);

/// The middle value, or the mean of the two middle ones; 0 of none.
[[nodiscard]] double median(std::vector<double> values);

[[nodiscard]] constexpr double microseconds(std::chrono::nanoseconds duration) noexcept {
    return static_cast<double>(duration.count()) / 1e3;
}

}  // namespace accel::report
