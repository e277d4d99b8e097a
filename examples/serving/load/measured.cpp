// SPDX-License-Identifier: Apache-2.0
#include "serving/load/measured.hpp"

#include <algorithm>
#include <numeric>

namespace accel::examples::serving {

std::span<const stage_name> stage_names() noexcept {
    static constexpr std::array<stage_name, stage_count> names{{{"total", &timeline::total},
                                                                {"request", &timeline::request},
                                                                {"queue", &timeline::queue},
                                                                {"copy", &timeline::copy},
                                                                {"preprocessing", &timeline::preprocessing},
                                                                {"inference", &timeline::inference},
                                                                {"response", &timeline::response}}};
    return names;
}

void measured::add_error(status why, std::string_view text) {
    ++errors.at(static_cast<std::size_t>(why));
    if (!first_error.empty()) return;
    first_error = to_string(why);
    if (!text.empty()) first_error.append(": ").append(text);
}

void measured::add(const measured& other) {
    for (std::size_t i = 0; i < stage_count; ++i) stages[i].add(other.stages[i]);
    for (std::size_t i = 0; i < errors.size(); ++i) errors[i] += other.errors[i];
    delay.add(other.delay);
    last_due = std::max(last_due, other.last_due);
    answered += other.answered;
    wrong += other.wrong;
    within_slo += other.within_slo;
    unsent += other.unsent;
    if (first_error.empty()) first_error = other.first_error;
}

std::uint64_t measured::failed() const noexcept {
    return std::accumulate(errors.begin(), errors.end(), std::uint64_t{0});
}

}  // namespace accel::examples::serving
