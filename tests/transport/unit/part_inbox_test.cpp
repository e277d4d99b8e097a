// SPDX-License-Identifier: Apache-2.0
// The parts of a request that have arrived: one thread adds them in any order, one takes them in theirs.
#include "core/server/part_inbox.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

constexpr std::uint32_t inbox_slots = 8;

struct counted_calls : exchange::part_waiter {
    counted_calls() : part_waiter{[](part_waiter& self) noexcept { ++static_cast<counted_calls&>(self).calls; }} {}
    std::atomic<int> calls{0};
};

bool add_to(part_inbox& inbox, exchange_state& part, std::uint64_t number, bool last = false) {
    part.extras = last ? 0 : exchange_extra::continues;
    return inbox.add(part, number, last, inbox_slots);
}

/// Calls one after another, whose parts come in random order, and are taken meanwhile or not at all.
class inbox_sequence {
  public:
    explicit inbox_sequence(unsigned seed) : random_(seed) { start(); }
    void step() {
        switch (random_() % 8) {
            case 0:
            case 1:
            case 2:
                return add();
            case 3:
            case 4:
                return take();
            case 5:
                return await();
            case 6:
                return release();
            default:
                return random_() % 8 == 0 ? end() : add();
        }
    }

  private:
    void start() {
        inbox_.start(++generation_);
        count_ = random_() % 30;
        next_ = taken_ = 0;
        arrived_.clear();
    }
    /// Any of those that a client with these slots may have sent.
    void add() {
        if (free_.empty()) return;
        std::uint64_t number = next_ + random_() % free_.size();
        while (arrived_.contains(number)) ++number;
        if (number > count_ || number - next_ >= inbox_slots) return;
        exchange_state& part = *free_.back();
        free_.pop_back();
        const bool came_in_turn = number == next_;
        EXPECT_TRUE(add_to(inbox_, part, number, number == count_));
        arrived_.insert(number);
        there_.insert(&part);
        while (arrived_.contains(next_)) ++next_;
        if (came_in_turn && waits_) {
            waits_ = false;
            ++expected_calls_;
        }
        EXPECT_EQ(waiter_.calls, expected_calls_);
    }
    void take() {
        exchange_state* const part = inbox_.take();
        ASSERT_EQ(part != nullptr, taken_ < next_);
        if (part == nullptr) return;
        EXPECT_EQ(part->trace_id, taken_++);
        EXPECT_EQ(inbox_.complete(), taken_ > count_);
        EXPECT_EQ(there_.erase(part), 1U);
        held_.push_back(part);
    }
    void release() {
        if (held_.empty()) return;
        free_.push_back(held_.front());
        held_.pop_front();
    }
    void await() {
        if (waits_) return;
        const bool there = inbox_.await(waiter_, [] { return false; });
        EXPECT_EQ(there, taken_ < next_ || taken_ > count_);
        waits_ = !there;
    }
    void end() {
        for (exchange_state* each = inbox_.end(); each != nullptr; each = each->next) {
            EXPECT_EQ(there_.erase(each), 1U) << "each goes back once";
            free_.push_back(each);
        }
        EXPECT_TRUE(there_.empty()) << "all go back";
        expected_calls_ += waits_ ? 1 : 0;
        waits_ = false;
        EXPECT_EQ(waiter_.calls, expected_calls_);
        EXPECT_EQ(inbox_.generation(), 0U);
        start();
    }

    std::mt19937 random_;
    part_inbox inbox_;
    std::array<exchange_state, inbox_slots> parts_;
    std::vector<exchange_state*> free_ = [this] {
        std::vector<exchange_state*> all;
        for (exchange_state& each : parts_) all.push_back(&each);
        return all;
    }();
    std::deque<exchange_state*> held_;       ///< by the handler
    std::set<const exchange_state*> there_;  ///< in the inbox
    std::set<std::uint64_t> arrived_;
    counted_calls waiter_;
    int expected_calls_ = 0;
    bool waits_ = false;
    std::uint64_t count_ = 0;  ///< number of the last part
    std::uint64_t next_ = 0;   ///< the first that has not arrived
    std::uint64_t taken_ = 0;
    std::uint32_t generation_ = 0;
};

TEST(part_inbox, parts_are_taken_once_and_in_order_or_go_back) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        inbox_sequence random(seed);
        for (int i = 0; i < 300; ++i) {
            random.step();
            if (::testing::Test::HasFailure()) FAIL() << "step " << i;
        }
    }
}

TEST(part_inbox, numbers_of_no_correct_client_are_refused) {
    std::array<exchange_state, 4> parts;
    const auto refused = [&](const std::vector<std::pair<std::uint64_t, bool>>& before, std::uint64_t number,
                             bool last) {
        part_inbox inbox;
        inbox.start(1);
        std::size_t used = 0;
        for (const auto& [each, is_last] : before) EXPECT_TRUE(add_to(inbox, parts[used++], each, is_last));
        return !add_to(inbox, parts[used], number, last);
    };
    EXPECT_FALSE(refused({}, inbox_slots - 1, false));
    EXPECT_TRUE(refused({}, inbox_slots, false)) << "further ahead than there are slots";
    EXPECT_FALSE(refused({{0, false}}, inbox_slots, false));
    EXPECT_TRUE(refused({}, ~std::uint64_t{0}, false));
    EXPECT_TRUE(refused({{0, false}}, 0, false)) << "twice";
    EXPECT_TRUE(refused({{1, false}, {1, false}}, 0, false)) << "twice, and too early";
    EXPECT_TRUE(refused({{0, true}}, 1, false)) << "after the last";
    EXPECT_TRUE(refused({{2, true}}, 3, false));
    EXPECT_TRUE(refused({{2, true}}, 1, true)) << "a second last part";
    EXPECT_TRUE(refused({{2, false}}, 1, true)) << "a last part before another one";
    EXPECT_FALSE(refused({{2, true}}, 1, false));
}

/// However they come, a step of `add` stays short.
TEST(part_inbox, many_parts_in_any_order_are_taken_in_theirs) {
    constexpr std::uint32_t many = 60'000;
    std::vector<exchange_state> parts(many);
    std::vector<std::uint64_t> numbers(many);
    std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
    std::mt19937 random(1);
    for (const int order : {0, 1, 2}) {
        if (order == 1) std::ranges::reverse(numbers);
        if (order == 2) std::ranges::shuffle(numbers, random);
        part_inbox inbox;
        inbox.start(1);
        for (std::uint32_t i = 0; i < many; ++i) ASSERT_TRUE(inbox.add(parts[i], numbers[i], false, many));
        for (std::uint64_t i = 0; i < many; ++i) ASSERT_EQ(inbox.take()->trace_id, i);
        EXPECT_EQ(inbox.end(), nullptr);
    }
}

TEST(part_inbox, two_threads_miss_no_call_of_a_waiter) {
    constexpr std::uint64_t rounds = 3000;
    part_inbox inbox;
    std::array<exchange_state, inbox_slots> parts;
    std::array<std::atomic<bool>, inbox_slots> used{};
    inbox.start(1);
    std::thread worker([&] {
        for (std::uint64_t i = 0; i < rounds; ++i) {
            // Pairs that have passed each other.
            const std::uint64_t number = i ^ 1;
            const std::size_t at = number % parts.size();
            while (used[at].exchange(true)) std::this_thread::yield();
            EXPECT_TRUE(add_to(inbox, parts[at], number, number + 1 == rounds));
        }
    });
    counted_calls waiter;
    int told = 0;
    for (std::uint64_t taken = 0; taken < rounds;) {
        if (exchange_state* const part = inbox.take(); part != nullptr) {
            EXPECT_EQ(part->trace_id, taken++);
            used[static_cast<std::size_t>(part - parts.data())] = false;
        } else if (!inbox.await(waiter, [] { return false; })) {
            while (waiter.calls == told) std::this_thread::yield();
            told = waiter.calls;
        }
    }
    worker.join();
    EXPECT_TRUE(inbox.complete());
}

}  // namespace
}  // namespace accel::core
