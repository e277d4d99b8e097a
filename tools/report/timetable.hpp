// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace accel::report {

/// On the clock of all times here.
[[nodiscard]] inline std::chrono::nanoseconds time_now() noexcept {
    return std::chrono::steady_clock::now().time_since_epoch();
}

/// When calls of an open loop are due: at equal distances, or as those of many independent callers.
enum class arrivals : std::uint8_t { constant, poisson };

/// The calls of all clients of an open loop.
struct arrival_plan {
    double rate = 1;  ///< calls due in a second, of all clients together
    std::uint32_t clients = 1;
    arrivals arriving = arrivals::constant;
    std::uint64_t seed = 0;  ///< of Poisson arrivals: the same seed gives the same times
};

/// When the calls of one client of an open loop are due. The times do not depend on when calls are sent or answered:
/// so a server that stalls is not spared the calls that come meanwhile (no coordinated omission).
class timetable {
  public:
    /// `client`: its number of `plan.clients`.
    timetable(const arrival_plan& plan, std::uint32_t client, std::chrono::nanoseconds start);

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

}  // namespace accel::report
