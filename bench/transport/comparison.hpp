// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "placement.hpp"
#include "side.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace accel::bench {

/// Two ways to echo one size, and how much longer the second may take.
struct comparison {
    side baseline;
    side subject;
    std::size_t size_bytes = 0;
    std::optional<double> target;  ///< the highest good ratio; nothing: for information
    /// Calls in flight. With one the time of a call is the median, with more the mean: that is bandwidth.
    std::uint32_t in_flight = 1;
};

struct effort {
    std::size_t rounds = 11;
    std::size_t max_calls = 2'000;           ///< of one side in one round
    std::chrono::milliseconds longest{400};  ///< of one side in one round
    const placement* cores = nullptr;        ///< client and server on cores of their own; null: anywhere
};

/// What the rounds gave: in each, the time of a call of either side.
struct verdict {
    double baseline_us = 0;  ///< median over the rounds
    double subject_us = 0;
    double ratio = 0;      ///< median of the ratios of each round
    double ratio_low = 0;  ///< the lowest and highest of them
    double ratio_high = 0;
    std::vector<double> baseline_rounds, subject_rounds;  ///< microseconds, round by round
};

/// Measures both sides in turn (A B, B A, …), each time with a new server process and a new connection.
[[nodiscard]] result<verdict> compare(const comparison& what, const effort& how);

}  // namespace accel::bench
