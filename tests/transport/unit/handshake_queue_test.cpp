// SPDX-License-Identifier: Apache-2.0
// Who of those that wait is next to shake hands with a server.
#include "core/control/handshake_queue.hpp"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core::testing {
namespace {

bool everybody(const std::string&) {
    return true;
}

TEST(handshake_queue, an_address_with_many_handshakes_does_not_delay_others) {
    handshake_queue queue;
    queue.add("other", 1);
    std::uint64_t newest = 1;
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < 32; ++i) queue.add("flood", ++newest);
        const std::optional<std::uint64_t> first = queue.next(everybody);
        const std::optional<std::uint64_t> second = queue.next(everybody);
        if (first == 1U || second == 1U) return;
    }
    FAIL() << "the other waits on";
}

TEST(handshake_queue, addresses_take_turns_and_the_newest_of_each_is_first) {
    handshake_queue queue;
    for (const std::uint64_t id : {1U, 2U, 3U}) queue.add("a", id);
    for (const std::uint64_t id : {4U, 5U}) queue.add("b", id);
    std::vector<std::uint64_t> order;
    while (const auto id = queue.next(everybody)) order.push_back(*id);
    EXPECT_EQ(order, (std::vector<std::uint64_t>{3, 5, 2, 4, 1}));
    EXPECT_TRUE(queue.empty());
}

TEST(handshake_queue, a_removed_connection_is_not_next) {
    handshake_queue queue;
    queue.add("a", 1);
    queue.add("a", 2);
    queue.add("b", 3);
    queue.remove("a", 2);
    queue.remove("b", 3);
    queue.remove("nobody", 4);
    EXPECT_TRUE(queue.holds("a", 1));
    EXPECT_FALSE(queue.holds("a", 2));
    EXPECT_EQ(queue.next(everybody), 1U);
    EXPECT_EQ(queue.next(everybody), std::nullopt);
    EXPECT_TRUE(queue.empty());
    queue.add("b", 5);
    EXPECT_EQ(queue.next(everybody), 5U);
}

TEST(handshake_queue, an_address_without_a_share_keeps_its_place) {
    handshake_queue queue;
    queue.add("a", 1);
    queue.add("b", 2);
    int asked = 0;
    const auto but_not_a = [&](const std::string& address) {
        ++asked;
        return address != "a";
    };
    EXPECT_EQ(queue.next(but_not_a), 2U);
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(queue.next(but_not_a), std::nullopt);
    EXPECT_FALSE(queue.empty());
    EXPECT_EQ(queue.next(everybody), 1U);
}

}  // namespace
}  // namespace accel::core::testing
