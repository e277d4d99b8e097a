// SPDX-License-Identifier: Apache-2.0
#include "perf/timetable.hpp"

namespace accel::perf {

/// Clients with equal distances take turns.
timetable::timetable(const load& what, std::uint32_t client, std::chrono::nanoseconds start)
    : mean_gap_(1e9 * what.clients / what.rate),
      arriving_(what.arriving),
      random_(client + 1),
      next_(static_cast<double>(start.count())) {
    next_ += arriving_ == arrivals::poisson ? gap() : mean_gap_ * client / what.clients;
}

void timetable::advance() noexcept {
    next_ += gap();
}

double timetable::gap() noexcept {
    if (arriving_ == arrivals::constant) return mean_gap_;
    return std::exponential_distribution<double>{1 / mean_gap_}(random_);
}

}  // namespace accel::perf
