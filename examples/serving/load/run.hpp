// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/cpu_time.hpp"
#include "serving/load/gpu_watch.hpp"
#include "serving/load/issue_queue.hpp"
#include "serving/load/measured.hpp"
#include "serving/load/settings.hpp"

#include <accel_transport/context.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace accel::examples::serving {

/// What one measurement came to.
struct load_outcome {
    std::string scheme;
    measured normal;
    measured high;                     ///< clients of high priority; empty where there are none
    std::chrono::nanoseconds start{};  ///< on the clock of all times here
    std::chrono::nanoseconds wall{};
    report::cpu_times cpu;  ///< of this process, without the comparing of answers and without `device_cpu`
    std::chrono::nanoseconds device_cpu{};  ///< of an emulated adapter in this process
    std::size_t resident_bytes = 0;
    std::uint64_t warmed_up = 0;  ///< calls before the measurement, of all clients
    std::optional<gpu_use> gpu;

    [[nodiscard]] measured all() const;
};

/// Connects the clients, warms up, and measures. Fails where a client cannot connect, or a call of the warm-up fails;
/// calls that fail later are counted. Says on a terminal how far it is.
[[nodiscard]] result<load_outcome> run_load(context& ctx, const load_settings& chosen);

/// Decides which calls are made, and when; ends when all of them have been answered.
using call_issuer = std::function<result<void>(issue_queue&)>;
/// The same clients, whose calls `issue` decides on. `answered` is told the id of each that has an answer or failed.
[[nodiscard]] result<load_outcome> run_issued(context& ctx, const load_settings& chosen, const call_issuer& issue,
                                              std::function<void(std::uint64_t)> answered);

/// Runs a load with these settings.
using load_runner = std::function<result<load_outcome>(const load_settings&)>;

struct peak {
    double rate = 0;  ///< calls a second; 0: no rate that was tried kept it
    std::optional<load_outcome> at;
    int trials = 0;
};
/// The highest rate of Poisson arrivals at which 99 % of the calls are answered within `chosen.slo`: by halving between
/// 0 and what the server does when all calls come at once, to 5 %.
[[nodiscard]] result<peak> find_peak(const load_settings& chosen, const load_runner& run);

/// Of the calls that were due: so many within the SLO keep it (MLPerf's Server scenario).
inline constexpr double part_within_slo = 0.99;

/// 99 % of what was due was answered right and in time, and nothing was left unsent.
[[nodiscard]] bool keeps_slo(const load_outcome& outcome);

}  // namespace accel::examples::serving
