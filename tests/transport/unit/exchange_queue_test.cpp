// SPDX-License-Identifier: Apache-2.0
// Requests that wait for a stream: each leaves the queue once, in its turn or at its deadline.
#include "staging/stream_pool.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <random>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

/// What a queue has to do, done with a container of the standard library.
class expected_queue {
  public:
    void push(exchange_state& added) { waiting_.push_back(&added); }
    [[nodiscard]] exchange_state* pop() { return take(waiting_.begin()); }
    [[nodiscard]] exchange_state* pop_expired(nanoseconds when) {
        return take(std::ranges::find_if(waiting_, [&](const auto* each) { return each->deadline <= when; }));
    }
    [[nodiscard]] bool empty() const { return waiting_.empty(); }

  private:
    exchange_state* take(std::deque<exchange_state*>::iterator at) {
        if (at == waiting_.end()) return nullptr;
        exchange_state* const taken = *at;
        waiting_.erase(at);
        return taken;
    }
    std::deque<exchange_state*> waiting_;
};

/// Up to eight wait, with deadlines in any order, and any of them expire.
TEST(exchange_queue, each_exchange_leaves_once_in_its_turn_or_at_its_deadline) {
    std::mt19937 random(1);
    std::array<exchange_state, 8> exchanges;
    std::deque<exchange_state*> outside;
    for (exchange_state& each : exchanges) outside.push_back(&each);
    exchange_queue queue;
    expected_queue expected;
    for (int i = 0; i < 20'000; ++i) {
        if (!outside.empty() && random() % 2 == 0) {
            exchange_state& added = *outside.front();
            outside.pop_front();
            added.deadline = nanoseconds{random() % 10};
            queue.push(added);
            expected.push(added);
        } else {
            const bool in_turn = random() % 2 == 0;
            const nanoseconds when{random() % 10};
            exchange_state* const left = in_turn ? queue.pop() : queue.pop_expired(when);
            ASSERT_EQ(left, in_turn ? expected.pop() : expected.pop_expired(when)) << "step " << i;
            if (left != nullptr) outside.push_back(left);
        }
        ASSERT_EQ(queue.empty(), expected.empty()) << "step " << i;
    }
}

}  // namespace
}  // namespace accel::core
