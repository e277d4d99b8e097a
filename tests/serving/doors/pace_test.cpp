// SPDX-License-Identifier: Apache-2.0
// How fast a client has to send a body.
#include "serving/doors/servers/body_pace.hpp"

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;

const door_settings limits{.body_rate = 1000, .body_grace = 2s};

/// At the second of two looks, as a door has them.
bool is_too_slow(body_pace& one, body_pace::clock::time_point at) {
    EXPECT_FALSE(one.is_too_slow(at, limits)) << "the first look only suspects";
    return one.is_too_slow(at + 1ms, limits);
}

TEST(doors_pace, a_body_must_keep_its_rate_in_each_grace_time) {
    const auto begin = body_pace::clock::time_point{} + 1h;
    body_pace one;
    one.begin(begin);
    EXPECT_FALSE(is_too_slow(one, begin + 1900ms)) << "nothing has come, but the grace time is not over";
    one.has(2000);
    EXPECT_FALSE(is_too_slow(one, begin + 2s));
    one.has(3999);
    EXPECT_TRUE(is_too_slow(one, begin + 4s)) << "what came before does not count";
}

TEST(doors_pace, bytes_that_a_busy_door_reads_late_count) {
    const auto begin = body_pace::clock::time_point{} + 1h;
    body_pace one;
    one.begin(begin);
    EXPECT_FALSE(one.is_too_slow(begin + 10s, limits));
    one.has(2000);
    EXPECT_FALSE(one.is_too_slow(begin + 10100ms, limits));
    EXPECT_FALSE(is_too_slow(one, begin + 12s)) << "it begins anew there";
    EXPECT_TRUE(is_too_slow(one, begin + 12200ms));
}

TEST(doors_pace, the_pace_is_measured_anew_for_each_body) {
    const auto begin = body_pace::clock::time_point{} + 1h;
    body_pace one;
    one.begin(begin);
    one.has(5000);
    one.begin(begin + 10s);
    EXPECT_EQ(one.bytes(), 0U);
    EXPECT_FALSE(is_too_slow(one, begin + 11s));
    EXPECT_TRUE(is_too_slow(one, begin + 12s));
}

TEST(doors_pace, any_body_is_fast_enough_without_a_rate) {
    body_pace one;
    one.begin({});
    for (const auto after : {1h, 2h})
        EXPECT_FALSE(one.is_too_slow(body_pace::clock::time_point{} + after, {.body_rate = 0}));
}

TEST(doors_pace, the_timeout_of_a_message_grows_with_its_length) {
    EXPECT_EQ(body_patience(3000, limits), 2s + 4s);
    EXPECT_EQ(body_patience(std::size_t{1} << 40, limits), limits.body_timeout);
    EXPECT_EQ(body_patience(0, {.body_rate = 0}), door_settings{}.body_timeout);
}

}  // namespace
}  // namespace accel::examples::serving::doors
