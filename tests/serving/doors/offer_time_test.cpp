// SPDX-License-Identifier: Apache-2.0
// The time of a request that is offered to one server after the other.
#include "serving/doors/servers/offer_time.hpp"

#include <chrono>
#include <optional>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;

const offer_time::clock::time_point began{1h};

TEST(doors_offer_time, all_calls_of_a_request_share_its_timeout) {
    offer_time of;
    EXPECT_EQ(of.begin_call(100ms, began), 100ms);
    EXPECT_EQ(of.begin_call(100ms, began + 30ms), 70ms);
    EXPECT_EQ(of.begin_call(20ms, began + 40ms), 20ms) << "its client waits no longer";
    EXPECT_FALSE(of.is_over(began + 99ms));
    EXPECT_TRUE(of.is_over(began + 100ms));
    EXPECT_EQ(of.begin_call(100ms, began + 100ms), std::nullopt);
}

TEST(doors_offer_time, requests_without_a_timeout_use_that_of_the_channel) {
    offer_time of;
    EXPECT_EQ(of.begin_call(0ms, began), 0ms);
    EXPECT_EQ(of.begin_call(0ms, began + 1h), 0ms);
    EXPECT_FALSE(of.is_over(began + 1h));
}

TEST(doors_offer_time, all_waits_for_a_slot_share_one_timeout) {
    offer_time of;
    EXPECT_EQ(of.begin_wait(100ms, began), 100ms);
    of.end_wait(began + 60ms);
    EXPECT_EQ(of.begin_wait(100ms, began + 10s), 40ms) << "the call does not count";
    of.end_wait(began + 10s + 50ms);
    EXPECT_EQ(of.begin_wait(100ms, began + 20s), 0ms);
}

TEST(doors_offer_time, a_wait_for_a_slot_ends_at_the_deadline) {
    offer_time of;
    EXPECT_EQ(of.begin_wait(5s, began), 5s);
    of.end_wait(began);
    ASSERT_EQ(of.begin_call(100ms, began), 100ms);
    EXPECT_EQ(of.begin_wait(5s, began + 30ms), 70ms);
    EXPECT_EQ(of.begin_wait(5s, began + 1s), 0ms);
}

}  // namespace
}  // namespace accel::examples::serving::doors
