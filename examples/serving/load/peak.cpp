// SPDX-License-Identifier: Apache-2.0
#include "serving/load/run.hpp"

#include <utility>

namespace accel::examples::serving {
namespace {

constexpr double precision = 0.05;

double rate_of(const load_outcome& outcome) {
    return static_cast<double>(outcome.all().answered) / std::chrono::duration<double>(outcome.wall).count();
}

}  // namespace

bool keeps_slo(const load_outcome& outcome) {
    const measured all = outcome.all();
    const auto due = static_cast<double>(all.calls() + all.unsent);
    return due > 0 && static_cast<double>(all.within_slo) >= part_within_slo * due;
}

result<peak> find_peak(const load_settings& chosen, const load_runner& run) {
    load_settings now = chosen;
    now.rate = 0;
    auto flood = run(now);
    if (!flood) return flood.error();
    peak best;
    double low = 0;
    double high = rate_of(*flood);
    while (high - low > precision * high) {
        now.rate = (low + high) / 2;
        auto trial = run(now);
        if (!trial) return trial.error();
        ++best.trials;
        const bool kept = keeps_slo(*trial);
        (kept ? low : high) = now.rate;
        if (kept) {
            best.rate = now.rate;
            best.at.emplace(std::move(trial).value());
        }
        if (best.trials == 12) break;
    }
    return best;
}

}  // namespace accel::examples::serving
