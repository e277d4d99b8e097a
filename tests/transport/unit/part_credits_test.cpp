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

struct counting_waiter : exchange::part_waiter {
    counting_waiter() : part_waiter{[](part_waiter& self) noexcept { ++static_cast<counting_waiter&>(self).calls; }} {}
    std::atomic<int> calls{0};
};

TEST(part_credits, added_room_is_taken_once) {
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

bool await(part_credits& parts, exchange::part_waiter& who) {
    return parts.await(who, [] { return false; });
}

TEST(part_credits, a_waiter_is_called_once_by_room_or_the_end) {
    part_credits parts;
    exchange_state room;
    counting_waiter first;
    counting_waiter second;
    parts.start(1);
    EXPECT_FALSE(await(parts, first));
    EXPECT_FALSE(await(parts, second)) << "the first one still waits";
    parts.add(room);
    EXPECT_EQ(first.calls, 1);
    EXPECT_EQ(second.calls, 0);
    EXPECT_TRUE(await(parts, second)) << "there is room";
    (void)parts.take();
    EXPECT_FALSE(await(parts, second));
    parts.end();
    EXPECT_EQ(second.calls, 1);
    parts.end();
    EXPECT_EQ(second.calls, 1);
    EXPECT_TRUE(parts.await(first, [] { return true; })) << "there will be no room";
    parts.wake();
    EXPECT_EQ(first.calls, 1) << "it was forgotten";
}

/// Room that comes before anybody waits calls nobody, and is found.
TEST(part_credits, room_added_while_a_waiter_registers_is_found) {
    part_credits parts;
    exchange_state room;
    counting_waiter who;
    parts.start(1);
    const auto room_comes = [&] {
        parts.add(room);
        return false;
    };
    EXPECT_TRUE(parts.await(who, room_comes));
    EXPECT_EQ(who.calls, 0);
    EXPECT_EQ(parts.next(), &room);
}

/// Whoever is called may send, and answer: the thread that began to wait touches nothing any more.
TEST(part_credits, a_called_waiter_owns_the_exchange) {
    constexpr int rounds = 2000;
    struct sender : exchange::part_waiter {
        sender() : part_waiter{[](part_waiter& self) noexcept { static_cast<sender&>(self).go_on(); }} {}
        void go_on() noexcept {
            if (of->next() != nullptr) (void)of->take();
            ++sent;
        }
        part_credits* of = nullptr;
        std::atomic<int> sent{0};
    };
    part_credits parts;
    exchange_state room;
    sender who;
    who.of = &parts;
    parts.start(1);
    for (int i = 0; i < rounds; ++i) {
        std::thread worker([&] { parts.add(room); });
        if (await(parts, who)) who.go_on();
        while (who.sent == i) std::this_thread::yield();
        worker.join();
        ASSERT_TRUE(parts.empty());
    }
}

TEST(part_credits, room_added_while_a_waiter_registers_is_reported) {
    part_credits parts;
    exchange_state room;
    counting_waiter waiter;
    parts.start(1);
    EXPECT_TRUE(parts.await(waiter, [&] {
        parts.add(room);  // as the worker's thread does
        return false;
    }));
    EXPECT_EQ(parts.next(), &room);
    EXPECT_EQ(waiter.calls, 0);
}

TEST(part_credits, two_threads_miss_no_call_of_a_waiter) {
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
        } else if (!await(parts, waiter)) {
            while (waiter.calls == told) std::this_thread::yield();
            told = waiter.calls;
        }
    }
    worker.join();
    EXPECT_TRUE(parts.empty());
}

}  // namespace
}  // namespace accel::core
