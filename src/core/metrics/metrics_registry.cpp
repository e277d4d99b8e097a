// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/metrics_registry.hpp"

#include <accel_transport/target.hpp>

namespace accel::core {

void metrics_registry::add(const metrics_source& source) {
    const std::lock_guard lock(mutex_);
    sources_.push_back(&source);
}

void metrics_registry::remove(const metrics_source& source) {
    const std::lock_guard lock(mutex_);
    if (std::erase(sources_, &source) == 0) return;
    source.add_to(ended_);
    ended_.drop_gauges();
}

void metrics_registry::name_target(std::string_view name) {
    const std::lock_guard lock(mutex_);
    // A client may ask for any number of names, but has the answer for few.
    if (names_.size() < 4 * max_targets) names_.emplace(target_of(name).number, name);
}

metrics_snapshot metrics_registry::snapshot() const {
    const std::lock_guard lock(mutex_);
    metrics_sums sums = ended_;
    for (const metrics_source* each : sources_) each->add_to(sums);
    return families_of(sums, names_);
}

}  // namespace accel::core
