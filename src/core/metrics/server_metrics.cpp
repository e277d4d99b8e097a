// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/server_metrics.hpp"

namespace accel::core {

server_series* server_metrics::of_scheme(std::string_view scheme) {
    const std::lock_guard lock(mutex_);
    for (const auto& each : schemes_)
        if (each->scheme == scheme) return each->series.data();
    schemes_.push_back(std::make_unique<of_one>(of_one{scheme, std::vector<server_series>(unknown() + 1)}));
    return schemes_.back()->series.data();
}

void server_metrics::add_to(metrics_sums& sums) const {
    const std::lock_guard lock(mutex_);
    for (const auto& each : schemes_) {
        for (std::size_t i = 0; i < each->series.size(); ++i) {
            call_sums own;
            own.read(each->series[i]);
            if (own.is_empty()) continue;
            const std::uint64_t target = i == 0 ? no_target : i == unknown() ? unknown_target : targets_[i - 1];
            sums.calls[{true, each->scheme, target}].add(own);
        }
    }
}

}  // namespace accel::core
