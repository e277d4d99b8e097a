// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/server_metrics.hpp"

#include <algorithm>

namespace accel::core {

scheme_series* server_metrics::of_scheme(std::string_view scheme) {
    const std::lock_guard lock(mutex_);
    for (const auto& each : schemes_)
        if (each->scheme == scheme) return each.get();
    auto made = std::make_unique<scheme_series>();
    made->scheme = scheme;
    for (std::size_t i = 0; i < targets_.size(); ++i) made->targeted[i] = std::make_unique<server_series>();
    schemes_.push_back(std::move(made));
    return schemes_.back().get();
}

std::size_t server_metrics::place_of(std::uint32_t target) {
    const std::lock_guard lock(mutex_);
    const auto place = static_cast<std::size_t>(std::ranges::find(targets_, target) - targets_.begin());
    if (place < targets_.size() || place == max_targets) return place;
    for (const auto& each : schemes_) each->targeted[place] = std::make_unique<server_series>();
    targets_.push_back(target);
    return place;
}

void server_metrics::add_to(metrics_sums& sums) const {
    const std::lock_guard lock(mutex_);
    for (const auto& each : schemes_) {
        const auto add = [&](std::uint64_t target, const server_series& series) {
            call_sums own;
            own.read(series);
            if (!own.is_empty()) sums.calls[{true, each->scheme, target}].add(own);
        };
        add(no_target, each->untargeted);
        for (std::size_t i = 0; i < targets_.size(); ++i) add(targets_[i], *each->targeted[i]);
        add(unknown_target, each->unknown);
        add(other_targets, each->others);
    }
}

}  // namespace accel::core
