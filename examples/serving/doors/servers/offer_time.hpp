// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace accel::examples::serving::doors {

/// How long a request may wait for slots, and how long its call may take, at all servers together that it is offered
/// to. `now` is given by tests alone.
class offer_time {
  public:
    using clock = std::chrono::steady_clock;
    using duration = std::chrono::nanoseconds;

    /// It waits for a slot from now on: so long at most, of `whole` for all its waits, and not beyond its deadline.
    [[nodiscard]] duration begin_wait(duration whole, clock::time_point now = clock::now()) noexcept {
        wait_began_ = now;
        const duration rest = std::max(whole - waited_, duration{0});
        return deadline_ ? std::clamp<duration>(*deadline_ - now, duration{0}, rest) : rest;
    }
    void end_wait(clock::time_point now = clock::now()) noexcept { waited_ += now - wait_began_; }
    /// What a call that begins now may take, of `whole` for all of them; 0, for the channel's own time, stays 0.
    /// Nothing: it is over.
    [[nodiscard]] std::optional<duration> begin_call(duration whole, clock::time_point now = clock::now()) noexcept {
        if (whole.count() == 0) return whole;
        if (!deadline_) deadline_ = now + whole;
        return is_over(now) ? std::nullopt : std::optional{std::min<duration>(*deadline_ - now, whole)};
    }
    [[nodiscard]] bool is_over(clock::time_point now = clock::now()) const noexcept {
        return deadline_ && now >= *deadline_;
    }

  private:
    clock::time_point wait_began_{};
    duration waited_{};
    std::optional<clock::time_point> deadline_;  ///< of the first call, and so of all
};

}  // namespace accel::examples::serving::doors
