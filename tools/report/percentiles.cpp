// SPDX-License-Identifier: Apache-2.0
#include "report/percentiles.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace accel::report {

std::chrono::nanoseconds percentile(std::span<const std::chrono::nanoseconds> sorted, double percent) noexcept {
    if (sorted.empty()) return {};
    // A whole rank comes out a little above itself where `percent` is no binary fraction.
    const double rank = std::ceil(std::clamp(percent, 0.0, 100.0) / 100.0 * static_cast<double>(sorted.size()) - 1e-9);
    const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
    return sorted[std::min(index, sorted.size() - 1)];
}

latency_summary summarise(std::vector<std::chrono::nanoseconds> samples) {
    std::ranges::sort(samples);
    return {percentile(samples, 50), percentile(samples, 90), percentile(samples, 99), percentile(samples, 99.9),
            percentile(samples, 100)};
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace accel::report
