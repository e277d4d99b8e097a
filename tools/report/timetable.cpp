// SPDX-License-Identifier: Apache-2.0
#include "report/timetable.hpp"

namespace accel::report {

/// Clients with equal distances take turns.
timetable::timetable(const arrival_plan& plan, std::uint32_t client, std::chrono::nanoseconds start)
    : mean_gap_(1e9 * plan.clients / plan.rate),
      arriving_(plan.arriving),
      random_(plan.seed * 1'000'003 + client + 1),
      next_(static_cast<double>(start.count())) {
    next_ += arriving_ == arrivals::poisson ? gap() : mean_gap_ * client / plan.clients;
}

void timetable::advance() noexcept {
    next_ += gap();
}

double timetable::gap() noexcept {
    if (arriving_ == arrivals::constant) return mean_gap_;
    return std::exponential_distribution<double>{1 / mean_gap_}(random_);
}

}  // namespace accel::report
