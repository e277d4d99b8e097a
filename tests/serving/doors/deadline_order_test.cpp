// SPDX-License-Identifier: Apache-2.0
// When the HTTP door looks at which connection.
#include "serving/doors/http/deadline_order.hpp"

#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;

struct timed_entry : deadline_entry {};

struct doors_deadline_order : testing::Test {
    const time_point start{std::chrono::hours{1}};
    timed_entry first;
    timed_entry second;
    timed_entry third;
    deadline_order<timed_entry> order;
};

TEST_F(doors_deadline_order, due_connections_come_in_order_of_time) {
    order.look_by(second, start + 2s);
    order.look_by(first, start + 1s);
    order.look_by(third, start + 3s);
    EXPECT_EQ(order.take_due(start), nullptr);
    EXPECT_EQ(order.take_due(start + 2s), &first);
    EXPECT_EQ(order.take_due(start + 2s), &second);
    EXPECT_EQ(order.take_due(start + 2s), nullptr);
    EXPECT_EQ(order.take_due(start + 3s), &third);
    EXPECT_EQ(order.take_due(time_point::max()), nullptr);
}

TEST_F(doors_deadline_order, earlier_time_replaces_a_later_one) {
    order.look_by(first, start + 3s);
    order.look_by(second, start + 2s);
    order.look_by(first, start + 1s);
    EXPECT_EQ(order.take_due(start + 1s), &first);
    EXPECT_EQ(order.take_due(start + 1s), nullptr);
}

TEST_F(doors_deadline_order, later_time_keeps_the_earlier_look) {
    order.look_by(first, start + 1s);
    order.look_by(first, start + 5s);
    order.look_by(first, time_point::max());
    EXPECT_EQ(order.take_due(start + 1s), &first);
    order.look_by(first, start + 5s);
    EXPECT_EQ(order.take_due(start + 4s), nullptr);
    EXPECT_EQ(order.take_due(start + 5s), &first);
}

TEST_F(doors_deadline_order, connection_without_a_deadline_is_not_looked_at) {
    order.look_by(first, time_point::max());
    EXPECT_EQ(order.take_due(time_point::max()), nullptr);
}

TEST_F(doors_deadline_order, destroyed_connection_leaves_the_order) {
    auto gone = std::make_unique<timed_entry>();
    order.look_by(*gone, start);
    order.look_by(first, start + 1s);
    gone.reset();
    EXPECT_EQ(order.take_due(start + 1s), &first);
}

}  // namespace
}  // namespace accel::examples::serving::doors
