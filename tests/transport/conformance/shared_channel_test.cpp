// SPDX-License-Identifier: Apache-2.0
// One channel that many threads call over.
#include "rig.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class shared_channels : public on_every_backend {
  protected:
    [[nodiscard]] static shared_channel open(rig& r, std::uint32_t slots = 4) {
        channel_options options = calm_client();
        options.slots = slots;
        auto made = shared_channel::connect(r.ctx(), r.uri(), options);
        if (!made) throw std::runtime_error("connect: " + made.error().message);
        return std::move(made).value();
    }
    [[nodiscard]] static std::vector<std::byte> request_of(std::uint64_t seed, std::size_t most = 20'000) {
        std::vector<std::byte> request(1 + mix(seed) % most);
        fill(request, seed);
        return request;
    }
    [[nodiscard]] static bool is_answer(const shared_response& one, std::span<const std::byte> to, std::uint64_t seed) {
        return one.response.size() == to.size() && matches(one.response, seed);
    }
    /// Holds requests without bytes, and answers the others.
    [[nodiscard]] static handler holds_empty_ones(held_exchanges& held) {
        return [&held](exchange one) { one.request().empty() ? held.keep(std::move(one)) : echo(std::move(one)); };
    }
    static void answer_all(held_exchanges& held) {
        while (held.size() > 0) echo(held.take());
    }
};

/// A thread in a call, whose end can be looked at.
class caller {
  public:
    explicit caller(shared_channel& over, nanoseconds timeout = {})
        : thread_([this, &over, timeout] {
              how_ = over.call(std::span<const std::byte>{}, {.timeout = timeout}).code();
              done_ = true;
          }) {}
    ~caller() { (void)join(); }
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;
    [[nodiscard]] bool done() const { return done_; }
    [[nodiscard]] status join() {
        if (thread_.joinable()) thread_.join();
        return how_;
    }

  private:
    status how_ = status::again;
    std::atomic<bool> done_{false};
    std::thread thread_;
};

TEST_P(shared_channels, threads_get_their_own_answers) {
    rig r(GetParam());
    shared_channel shared = open(r);
    const int count = effort(60);
    std::atomic<int> good{0};
    std::vector<std::thread> all;
    for (std::uint64_t thread = 0; thread < 8; ++thread) {
        all.emplace_back([&, thread] {
            for (int i = 0; i < count; ++i) {
                const std::uint64_t seed = thread * 1'000 + static_cast<std::uint64_t>(i);
                const std::vector<std::byte> request = request_of(seed);
                auto answer = shared.call(request);
                good += answer && is_answer(*answer, request, seed);
            }
        });
    }
    for (std::thread& each : all) each.join();
    EXPECT_EQ(good, 8 * count);
    EXPECT_EQ(shared.statistics().submitted, static_cast<std::uint64_t>(8 * count));
    EXPECT_EQ(shared.statistics().completed, static_cast<std::uint64_t>(8 * count));
}

/// Whoever leads: the thread of the slow call, and after it another.
TEST_P(shared_channels, a_slow_call_does_not_hold_up_others) {
    held_exchanges held;
    rig r(GetParam(), holds_empty_ones(held));
    shared_channel shared = open(r);
    const auto calls = [&] {
        for (std::uint64_t i = 0; i < 10; ++i) {
            const std::vector<std::byte> request = request_of(i, 100);
            auto answer = shared.call(request);
            ASSERT_TRUE(answer) << answer.error().message;
            EXPECT_TRUE(is_answer(*answer, request, i));
        }
    };
    std::optional<caller> first(std::in_place, shared);
    ASSERT_TRUE(held.wait_for(1));
    std::optional<caller> second(std::in_place, shared);
    ASSERT_TRUE(held.wait_for(2));
    calls();
    echo(held.take());
    EXPECT_EQ(first->join(), status::ok);
    calls();
    EXPECT_FALSE(second->done());
    echo(held.take());
    EXPECT_EQ(second->join(), status::ok);
}

/// The leader sleeps without a deadline of its own that is near.
TEST_P(shared_channels, each_call_keeps_its_deadline) {
    held_exchanges held;
    rig r(GetParam(), holds_empty_ones(held));
    shared_channel shared = open(r);
    caller patient(shared, until_hung());
    ASSERT_TRUE(held.wait_for(1));
    {
        caller later(shared, 200ms);
        caller sooner(shared, 50ms);
        EXPECT_EQ(sooner.join(), status::timed_out);
        EXPECT_EQ(later.join(), status::timed_out);
    }
    EXPECT_FALSE(patient.done());
    answer_all(held);
    EXPECT_EQ(patient.join(), status::ok);
}

TEST_P(shared_channels, calls_wait_for_a_slot_in_order_until_their_deadlines) {
    held_exchanges held;
    std::mutex mutex;
    std::vector<std::byte> order;
    rig r(GetParam(), [&](exchange one) {
        if (one.request().empty()) return held.keep(std::move(one));
        const std::lock_guard lock(mutex);
        order.push_back(copy_of(one.request()).front());
        echo(std::move(one));
    });
    shared_channel shared = open(r, 1);
    caller first(shared);
    ASSERT_TRUE(held.wait_for(1));
    const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
    std::vector<shared_call> line;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        line.push_back(std::move(shared.submit(std::span{bytes}.subspan(i, 1))).value());
    const auto late = shared.call(bytes, {.timeout = 50ms});
    EXPECT_EQ(late.code(), status::timed_out);
    EXPECT_NE(late.error().message.find("no slot"), std::string::npos) << late.error().message;
    EXPECT_FALSE(line.front().done());
    EXPECT_EQ(line[1].cancel(), status::ok);
    EXPECT_EQ(line[1].wait().code(), status::cancelled);
    echo(held.take());
    EXPECT_EQ(first.join(), status::ok);
    EXPECT_TRUE(line.front().wait());
    EXPECT_TRUE(line.back().wait());
    const std::lock_guard lock(mutex);
    EXPECT_EQ(order, (std::vector{std::byte{1}, std::byte{3}}));
}

TEST_P(shared_channels, a_response_keeps_its_slot_and_outlives_the_channel) {
    rig r(GetParam());
    std::optional<shared_channel> shared(open(r, 1));
    const std::vector<std::byte> request = request_of(1);
    auto kept = shared->call(request);
    ASSERT_TRUE(kept) << kept.error().message;
    EXPECT_EQ(shared->call(request, {.timeout = 20ms}).code(), status::timed_out);
    std::optional<caller> waiting(std::in_place, *shared);
    shared_response moved = std::move(*kept);
    EXPECT_TRUE(is_answer(moved, request, 1));
    { const shared_response gone = std::move(moved); }
    EXPECT_EQ(waiting->join(), status::ok) << "it got the slot";
    auto last = shared->call(request);
    ASSERT_TRUE(last) << last.error().message;
    shared.reset();
    EXPECT_TRUE(is_answer(*last, request, 1));
}

TEST_P(shared_channels, cancel_ends_a_call_that_another_thread_waits_for) {
    held_exchanges held;
    rig r(GetParam(), holds_empty_ones(held));
    shared_channel shared = open(r);
    auto call = shared.submit(std::span<const std::byte>{});
    ASSERT_TRUE(call) << call.error().message;
    std::thread waiting([&] { EXPECT_EQ(call->wait().code(), status::cancelled); });
    ASSERT_TRUE(held.wait_for(1));
    EXPECT_EQ(call->cancel(), status::ok);
    waiting.join();
    EXPECT_EQ(call->cancel(), status::invalid_state);
    EXPECT_EQ(call->wait().code(), status::invalid_state);
    held.clear();
}

TEST_P(shared_channels, close_ends_the_calls_of_all_threads) {
    held_exchanges held;
    rig r(GetParam(), holds_empty_ones(held));
    shared_channel shared = open(r, 2);
    std::vector<std::unique_ptr<caller>> all;  // two in flight, two in line
    for (int i = 0; i < 4; ++i) all.push_back(std::make_unique<caller>(shared));
    ASSERT_TRUE(held.wait_for(2));
    shared.close();
    for (auto& each : all) EXPECT_EQ(each->join(), status::closed);
    EXPECT_EQ(shared.call(std::span<const std::byte>{}).code(), status::closed);
    held.clear();
}

TEST_P(shared_channels, destruction_ends_the_calls_of_all_threads) {
    held_exchanges held;
    rig r(GetParam(), holds_empty_ones(held));
    std::optional<shared_channel> shared(open(r, 2));
    std::vector<shared_call> calls;
    for (int i = 0; i < 4; ++i) calls.push_back(std::move(shared->submit(std::span<const std::byte>{})).value());
    std::vector<std::thread> all;
    for (shared_call& each : calls) all.emplace_back([&each] { EXPECT_EQ(each.wait().code(), status::closed); });
    ASSERT_TRUE(held.wait_for(2));
    shared.reset();
    for (std::thread& each : all) each.join();
    held.clear();
}

TEST_P(shared_channels, refuses_parts_and_requests_that_are_too_large) {
    rig r(GetParam());
    shared_channel shared = open(r);
    EXPECT_EQ(shared.call(request_of(1), {.parts = 1}).code(), status::invalid_argument);
    EXPECT_EQ(shared.submit(request_of(1), {.parts = 1}).code(), status::invalid_argument);
    EXPECT_EQ(shared.call(request_of(1), {.continues = true}).code(), status::invalid_argument);
    EXPECT_EQ(shared.submit(request_of(1), {.continues = true}).code(), status::invalid_argument);
    EXPECT_EQ(shared.call(std::vector<std::byte>(shared.max_request_bytes() + 1)).code(), status::message_too_large);
}

TEST_P(shared_channels, lent_memory_is_released_with_the_call) {
    held_exchanges held;
    rig r(GetParam(),
          [&, count = 0](exchange one) mutable { count++ == 0 ? held.keep(std::move(one)) : echo(std::move(one)); });
    shared_channel shared = open(r);
    auto memory = r.ctx().allocate(8 << 10);
    ASSERT_TRUE(memory);
    const slice request = memory->part(0, 1 << 10).value(), into = memory->part(4 << 10, 1 << 10).value();
    fill({memory->data(), 1 << 10}, 5);
    {
        auto dropped = shared.submit(request, {.response_into = into});
        ASSERT_TRUE(dropped) << dropped.error().message;
        ASSERT_TRUE(held.wait_for(1));
        echo(held.take());
    }
    auto answer = shared.call(request, {.response_into = into});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->response.data(), into.bytes().data());
    EXPECT_TRUE(matches(answer->response, 5));
}

/// Calls that wait, are given up, cancelled or kept, in random order, until the channel is closed among them.
TEST_P(shared_channels, threads_do_all_of_it_at_random) {
    rig r(GetParam());
    shared_channel shared = open(r, 6);
    std::atomic<int> wrong{0};
    std::atomic<int> answered{0};
    const auto work = [&](std::uint64_t thread) {
        std::mt19937_64 random(thread);
        std::optional<shared_response> kept;
        for (int i = 0; i < effort(200); ++i) {
            const std::uint64_t seed = random();
            const std::vector<std::byte> request = request_of(seed, 2'000);
            auto call = shared.submit(request);
            if (!call) return;
            if (seed % 8 == 0) continue;  // given up
            if (seed % 8 == 1) (void)call->cancel();
            if (seed % 8 == 2) (void)call->done();
            auto answer = call->wait();
            if (answer) {
                ++answered;
                wrong += !is_answer(*answer, request, seed);
                if (seed % 8 == 3) kept.emplace(std::move(*answer));
                continue;
            }
            if (answer.code() == status::closed) return;
            wrong += answer.code() != status::cancelled;
        }
    };
    std::vector<std::thread> all;
    for (std::uint64_t i = 0; i < 5; ++i) all.emplace_back(work, i);
    EXPECT_TRUE(eventually(until_hung(), [&] { return answered > effort(100); }));
    shared.close();
    for (std::thread& each : all) each.join();
    EXPECT_EQ(wrong, 0);
}

ACCEL_INSTANTIATE(shared_channels, all_backends);

}  // namespace
}  // namespace accel::tests
