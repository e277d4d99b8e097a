// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/load/run.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::serving {

/// MLPerf's scenarios that load can run.
enum class scenario : std::uint8_t {
    server,   ///< Poisson arrivals at a rate
    offline,  ///< all calls at once
    peak,     ///< FindPeakPerformance: the highest rate of `server` that keeps the latency
};

/// Of one run for a log.
struct mlperf_run {
    std::string folder;
    serving::scenario scenario = scenario::server;
    std::uint64_t calls = 0;              ///< at least, of all clients together
    std::chrono::nanoseconds duration{};  ///< at least
    double rate = 0;                      ///< of `server`; of `peak` where it begins
};

/// Writes mlperf_log_summary.txt of a run that LoadGen has not made, with LoadGen's lines and verdicts. Latencies are
/// within 0.1 %. A call that failed counts as one over the latency.
/// Source: MLPerf Inference LoadGen 6.0, results.cc and early_stopping.cc.
[[nodiscard]] result<void> write_mlperf_summary(const mlperf_run& run, const load_settings& chosen,
                                                const load_outcome& outcome);

/// What stands behind `name` and a colon in the summary that lies in `folder`.
[[nodiscard]] std::optional<std::string> mlperf_value(const std::string& folder, std::string_view name);

/// The fewest calls of which `late` may be over the latency, so that with 99 % certainty no more than 1 % of all calls
/// are.
[[nodiscard]] std::uint64_t calls_for_early_stopping(std::uint64_t late);

}  // namespace accel::examples::serving
