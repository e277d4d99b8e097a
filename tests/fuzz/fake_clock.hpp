// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace accel::tests {

/// CLOCK_MONOTONIC of this program while an object lives: an input then does the same each time it runs, and
/// deadlines pass as it says. Starts at the same time, and moves on by a microsecond with each reading, so
/// that loops with a bound in time end. Who only sleeps (an epoll without events, too) wakes at once, and the
/// time has passed. One at a time; the other clocks stay as they are.
class fake_clock {
  public:
    fake_clock();
    ~fake_clock();
    fake_clock(const fake_clock&) = delete;
    fake_clock& operator=(const fake_clock&) = delete;
    void pass(std::chrono::nanoseconds time);
};

}  // namespace accel::tests
