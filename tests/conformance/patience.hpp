// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdlib>
#include <thread>

namespace accel::tests {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

/// How much slower this build is than a release build: `ACCEL_TEST_TIME_FACTOR`, set by ctest under
/// sanitizers.
[[nodiscard]] inline int time_factor() {
    static const int factor = [] {
        const char* text = std::getenv("ACCEL_TEST_TIME_FACTOR");
        const int value = text == nullptr ? 1 : std::atoi(text);
        return value < 1 ? 1 : value;
    }();
    return factor;
}

/// A bound for waiting, stretched for slow builds.
[[nodiscard]] inline nanoseconds patience(nanoseconds bound) {
    return bound * time_factor();
}

/// Work to do, shrunk for slow builds.
[[nodiscard]] inline int effort(int count) {
    return count / time_factor() < 1 ? 1 : count / time_factor();
}

/// Tries `done` until it holds or `bound` has passed; what it said last.
template <class Condition>
[[nodiscard]] bool eventually(nanoseconds bound, Condition done, nanoseconds pause = 1ms) {
    const auto deadline = std::chrono::steady_clock::now() + bound;
    while (!done()) {
        if (std::chrono::steady_clock::now() > deadline) return done();
        std::this_thread::sleep_for(pause);
    }
    return true;
}

}  // namespace accel::tests
