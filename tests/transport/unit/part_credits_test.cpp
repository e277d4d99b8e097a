// SPDX-License-Identifier: Apache-2.0
// The room that a client gives for parts: one thread adds, one takes, and whoever waits is called once.
#include "core/server/part_credits.hpp"

#include <array>
#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

struct counting_waiter : exchange::part_waiter {
    counting_waiter() : part_waiter{[](part_waiter& self) noexcept { ++static_cast<counting_waiter&>(self).calls; }} {}
    std::atomic<int> calls{0};
};

bool await(part_credits& parts, exchange::part_waiter& who) {
    return parts.await(who, [] { return false; });
}

/// One thread does all, in random order: calls, room, parts, waiters that come while room or the end does.
class credits_sequence {
  public:
    explicit credits_sequence(unsigned seed) : random_(seed) { start(); }
    void step() {
        switch (random_() % 8) {
            case 0:
            case 1:
                return add();
            case 2:
                EXPECT_EQ(parts_.next() == nullptr, named_ == nullptr && added_.empty());
                return name();
            case 3:
                return take();
            case 4:
                parts_.wake();
                return expect_call();
            case 5:
                return end();
            default:
                return await();
        }
    }
    void check() {
        EXPECT_EQ(parts_.generation(), generation_);
        EXPECT_EQ(parts_.named(), named_);
        EXPECT_EQ(parts_.empty(), added_.empty());
        EXPECT_EQ(parts_.sent(), sent_);
        EXPECT_EQ(waiters_[0].calls, expected_calls_[0]);
        EXPECT_EQ(waiters_[1].calls, expected_calls_[1]);
    }

  private:
    static constexpr std::size_t nobody = 2;
    void start() {
        parts_.start(++generation_);
        sent_ = 0;
    }
    void add() {
        for (exchange_state& each : rooms_) {
            if (&each == named_ || added_.contains(&each)) continue;
            parts_.add(each);
            added_.insert(&each);
            return expect_call();
        }
    }
    /// `next` has named one of those that were added, unless it had before.
    void name() {
        if (named_ != nullptr || added_.empty()) return;
        named_ = parts_.next();
        EXPECT_EQ(added_.erase(named_), 1U);
        EXPECT_EQ(parts_.next(), named_) << "it stays until it is taken";
    }
    void take() {
        if (named_ == nullptr) return;
        EXPECT_EQ(&parts_.take(), std::exchange(named_, nullptr));
        EXPECT_EQ(parts_.count(), sent_++);
    }
    void expect_call() {
        if (waiting_ != nobody) ++expected_calls_[waiting_];
        waiting_ = nobody;
    }
    void end() {
        while (parts_.next() != nullptr) {
            name();
            take();
        }
        parts_.end();
        const std::uint32_t ended = std::exchange(generation_, 0);
        expect_call();
        check();
        generation_ = ended;
        start();
    }
    void await() {
        const std::size_t who = random_() % 2;
        const bool room = named_ != nullptr || !added_.empty();
        const unsigned meanwhile = random_() % 4;  // 0: nothing happens
        const bool waits = parts_.await(waiters_[who], [&] {
            if (meanwhile == 1) add();
            if (meanwhile == 2) parts_.wake();
            return meanwhile == 3;
        });
        name();
        EXPECT_EQ(waits, room || (waiting_ == nobody && meanwhile != 0));
        if (!waits && waiting_ == nobody) waiting_ = who;
    }

    std::mt19937 random_;
    part_credits parts_;
    std::array<exchange_state, 4> rooms_;
    std::set<const exchange_state*> added_;
    const exchange_state* named_ = nullptr;
    std::array<counting_waiter, 2> waiters_;
    std::array<int, 2> expected_calls_{};
    std::size_t waiting_ = nobody;
    std::uint64_t sent_ = 0;
    std::uint32_t generation_ = 0;
};

TEST(part_credits, room_is_taken_once_and_a_waiter_is_called_once_by_room_or_the_end) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        credits_sequence random(seed);
        for (int i = 0; i < 200; ++i) {
            random.step();
            random.check();
            if (::testing::Test::HasFailure()) FAIL() << "step " << i;
        }
    }
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
