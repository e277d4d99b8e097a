// SPDX-License-Identifier: Apache-2.0
#include "core/control/liveness.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(liveness, beats_four_times_in_a_peers_patience_within_bounds) {
    EXPECT_EQ(beat_interval(20s), 5s);
    EXPECT_EQ(beat_interval(4min), 1min);
    EXPECT_EQ(beat_interval(1h), 1min);
    EXPECT_EQ(beat_interval(8ms), 2ms);
    EXPECT_EQ(beat_interval(1ms), 2ms);
}

TEST(liveness, looks_at_the_end_of_a_certificate_or_each_minute) {
    constexpr nanoseconds at = 5h;
    EXPECT_EQ(time_to_look(wall_time::max(), at), never);
    EXPECT_EQ(time_to_look(wall_now() + 24h, at), at + 60s);
    EXPECT_EQ(time_to_look(wall_now() - 24h, at), at);
    const wall_time before = wall_now();
    const nanoseconds look = time_to_look(before + 50s, at);
    const nanoseconds passed = wall_now() - before + 1s;  // a wall clock of whole seconds
    EXPECT_LE(look, at + 50s);
    EXPECT_GE(look, at + 50s - passed);
}

/// A sample that is a second old may be wrong by 100 µs.
TEST(liveness, an_old_estimate_gives_way_to_one_with_a_longer_round_trip) {
    const nanoseconds ahead = 1h;
    const auto exchange = [ahead](clock_estimate& clock, nanoseconds sent, nanoseconds way_there,
                                  nanoseconds way_back) {
        const nanoseconds at_peer = sent + way_there + ahead;
        clock.add({sent, at_peer, at_peer}, sent + way_there + way_back);
    };
    clock_estimate clock;
    exchange(clock, 1s, 10us, 10us);
    EXPECT_EQ(clock.offset(), ahead);
    exchange(clock, 2s, 20us, 101us);
    EXPECT_EQ(clock.offset(), ahead) << "20 µs and what the clocks may have drifted are less";
    exchange(clock, 2s, 20us, 100us);
    EXPECT_EQ(clock.offset(), ahead - 40us);
    exchange(clock, 2s, 10us, 120us);
    EXPECT_EQ(clock.offset(), ahead - 40us);
    exchange(clock, 2s, 50us, 70us);
    EXPECT_EQ(clock.offset(), ahead - 10us) << "as good, and newer";
}

TEST(liveness, time_spent_elsewhere_does_not_count_as_listening) {
    listening_clock clock;
    const nanoseconds start = now();
    clock.advance(start, 0s);
    const nanoseconds before = clock.listened();
    clock.advance(start + 100ms, 100ms);
    EXPECT_EQ(clock.listened() - before, 100ms);
    clock.advance(start + 250ms, 140ms);
    EXPECT_EQ(clock.listened() - before, 250ms) << "a little late";
    clock.advance(start + 10s, 140ms);
    EXPECT_EQ(clock.listened() - before, 400ms);
    clock.advance(start + 9s, 140ms);
    EXPECT_EQ(clock.listened() - before, 400ms) << "the clock of another thread was ahead";
}

}  // namespace
}  // namespace accel::core
