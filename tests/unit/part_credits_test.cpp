// SPDX-License-Identifier: Apache-2.0
// The room that a client gives for parts: one thread adds, one takes, and whoever waits is called once.
#include "core/server/part_credits.hpp"

#include <array>
#include <atomic>
#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

struct counting_waiter : part_waiter {
    counting_waiter() : part_waiter{[](part_waiter& self) noexcept { ++static_cast<counting_waiter&>(self).calls; }} {}
    std::atomic<int> calls{0};
};

TEST(part_credits, what_was_added_is_taken_once) {
    part_credits parts;
    std::array<exchange_state, 3> rooms;
    parts.start(5);
    EXPECT_EQ(parts.generation(), 5U);
    EXPECT_TRUE(parts.empty());
    EXPECT_EQ(parts.next(), nullptr);
    std::set<const exchange_state*> added;
    for (exchange_state& each : rooms) {
        parts.add(each);
        added.insert(&each);
    }
    EXPECT_FALSE(parts.empty());
    while (exchange_state* const next = parts.next()) {
        EXPECT_EQ(parts.next(), next) << "it stays until it is taken";
        EXPECT_EQ(&parts.take(), next);
        EXPECT_EQ(added.erase(next), 1U);
    }
    EXPECT_TRUE(added.empty());
    EXPECT_EQ(parts.count(), 0U);
    EXPECT_EQ(parts.count(), 1U);
    EXPECT_EQ(parts.sent(), 2U);
    parts.end();
    EXPECT_EQ(parts.generation(), 0U);
    parts.start(6);
    EXPECT_EQ(parts.sent(), 0U);
}

TEST(part_credits, whoever_waits_is_called_once_by_room_or_the_end) {
    part_credits parts;
    exchange_state room;
    counting_waiter first;
    counting_waiter second;
    parts.start(1);
    EXPECT_FALSE(parts.await(first));
    EXPECT_FALSE(parts.await(second)) << "the first one still waits";
    parts.add(room);
    EXPECT_EQ(first.calls, 1);
    EXPECT_EQ(second.calls, 0);
    EXPECT_TRUE(parts.await(second)) << "there is room";
    (void)parts.take();
    EXPECT_FALSE(parts.await(second));
    parts.end();
    EXPECT_EQ(second.calls, 1);
    parts.end();
    EXPECT_EQ(second.calls, 1);
    EXPECT_FALSE(parts.await(first));
    EXPECT_TRUE(parts.forget_waiter());
    EXPECT_FALSE(parts.forget_waiter());
    parts.wake();
    EXPECT_EQ(first.calls, 1);
}

TEST(part_credits, no_call_is_missed_between_two_threads) {
    constexpr int rounds = 3000;
    part_credits parts;
    std::array<exchange_state, 4> rooms;
    std::array<std::atomic<bool>, 4> used{};
    parts.start(1);
    std::thread worker([&] {
        for (int i = 0; i < rounds; ++i) {
            const std::size_t at = static_cast<std::size_t>(i) % rooms.size();
            while (used[at].exchange(true)) std::this_thread::yield();
            parts.add(rooms[at]);
        }
    });
    counting_waiter waiter;
    int told = 0;
    for (int taken = 0; taken < rounds;) {
        if (parts.next() != nullptr) {
            ++taken;
            used[static_cast<std::size_t>(&parts.take() - rooms.data())] = false;
        } else if (!parts.await(waiter)) {
            while (waiter.calls == told) std::this_thread::yield();
            told = waiter.calls;
        }
    }
    worker.join();
    EXPECT_TRUE(parts.empty());
}

}  // namespace
}  // namespace accel::core
