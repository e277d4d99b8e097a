// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/load.hpp"

#include <chrono>
#include <cstdint>
#include <random>

namespace accel::perf {

/// On the clock of all times here.
[[nodiscard]] inline std::chrono::nanoseconds time_now() noexcept {
    return std::chrono::steady_clock::now().time_since_epoch();
}

/// When the calls of one client of an open loop are due. The times do not depend on when calls are sent or answered:
/// so a server that stalls is not spared the calls that come meanwhile (no coordinated omission).
class timetable {
  public:
    /// `client`: its number of `what.clients`. All of them together have `what.rate`.
    timetable(const load& what, std::uint32_t client, std::chrono::nanoseconds start);

    [[nodiscard]] std::chrono::nanoseconds next() const noexcept {
        return std::chrono::nanoseconds{std::int64_t(next_)};
    }
    void advance() noexcept;

  private:
    [[nodiscard]] double gap() noexcept;

    double mean_gap_;  ///< ns
    arrivals arriving_;
    std::mt19937_64 random_;
    double next_;
};

}  // namespace accel::perf
