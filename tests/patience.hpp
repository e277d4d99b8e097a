// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

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

/// How long a test waits for something that must happen. On a busy machine anything can take seconds, so only a hang
/// takes this long.
[[nodiscard]] inline nanoseconds until_hung() {
    return patience(30s);
}

/// Tries `done` until it holds or `bound` has passed; what it said last.
template <class Condition>
[[nodiscard]] bool within(nanoseconds bound, Condition done, nanoseconds pause = 1ms) {
    const auto deadline = std::chrono::steady_clock::now() + bound;
    while (!done()) {
        if (std::chrono::steady_clock::now() > deadline) return done();
        std::this_thread::sleep_for(pause);
    }
    return true;
}

/// Waits for something that must happen: at least `until_hung`, also where `bound` is shorter.
template <class Condition>
[[nodiscard]] bool eventually(nanoseconds bound, Condition done, nanoseconds pause = 1ms) {
    return within(bound < until_hung() ? until_hung() : bound, std::move(done), pause);
}
template <class Condition>
[[nodiscard]] bool eventually(Condition done) {
    return within(until_hung(), std::move(done));
}

/// Calls `attempt` with longer and longer times until it returns true. False says that this machine needed longer for a
/// step than it was given, which tells nothing of what is tested.
template <class Attempt>
void with_enough_time(nanoseconds first, Attempt attempt) {
    for (nanoseconds time = patience(first); !attempt(time); time *= 3)
        if (time > 2 * until_hung()) throw std::runtime_error("no attempt was given enough time");
}

/// The wait for one thing after another; only a hang keeps one of them away for long.
class patient_wait {
  public:
    void restart() { since_ = std::chrono::steady_clock::now(); }
    /// Lets others run. False: it has taken too long since the last one.
    [[nodiscard]] bool goes_on() const {
        std::this_thread::yield();
        return std::chrono::steady_clock::now() - since_ < until_hung();
    }

  private:
    std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace accel::tests
