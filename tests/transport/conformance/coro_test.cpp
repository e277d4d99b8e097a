// SPDX-License-Identifier: Apache-2.0
// Awaited calls over every transport. (What they do beyond that: tests/transport/clients/coro_test.cpp.)
#include "rig.hpp"

#include <accel_transport/coro.hpp>

#include <array>
#include <coroutine>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

/// A coroutine whose frame a test destroys when it likes.
struct frame {
    struct promise_type {
        frame get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
        [[nodiscard]] std::suspend_always final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};

class awaited : public on_every_backend {
  protected:
    [[nodiscard]] static channel connect(rig& r, std::uint32_t slots) {
        channel_options options = calm_client();
        options.slots = slots;
        return r.try_connect(options).value();
    }
    [[nodiscard]] static bool drive(coro::calls& calls, const std::function<bool()>& done) {
        return eventually(patience(10s), [&] {
            (void)calls.wait(1ms);
            return done();
        });
    }
};

coro::detached talk(coro::calls& calls, std::uint64_t seed, int count, int& good, int& left) {
    for (int i = 0; i < count; ++i) {
        const std::uint64_t own = seed * 1'000 + static_cast<std::uint64_t>(i);
        std::vector<std::byte> request(mix(own) % 20'000);
        fill(request, own);
        const coro::answer got = co_await calls.call(request);
        good += got.ok() && got.bytes().size() == request.size() && matches(got.bytes(), own);
    }
    --left;
}

TEST_P(awaited, more_coroutines_than_slots_are_served) {
    rig r(GetParam());
    coro::calls calls{connect(r, 3)};
    const int count = effort(40);
    int good = 0;
    int left = 10;
    for (std::uint64_t i = 0; i < 10; ++i) talk(calls, i, count, good, left);
    EXPECT_TRUE(drive(calls, [&] { return left == 0; }));
    EXPECT_EQ(good, 10 * count);
}

/// The same with requests that are written in place, and tensors in both directions.
coro::detached talk_in_place(coro::calls& calls, std::uint64_t seed, int count, int& good, int& left) {
    for (int i = 0; i < count; ++i) {
        const std::uint64_t own = seed * 1'000 + static_cast<std::uint64_t>(i);
        tensor one{{}, 1, 0, {static_cast<std::uint32_t>(1 + own % 100)}};
        const std::size_t length = place_tensors({&one, 1});
        const auto begun = co_await calls.begin();
        if (!begun) break;
        fill(begun->request.first(length), own);
        const coro::answer got = co_await calls.submit(begun->id, length, {.tensors = {&one, 1}});
        std::array<tensor, 1> room{};
        const auto described = got.tensors(room);
        good += described && described->size() == 1 && room[0].shape[0] == one.shape[0];
    }
    --left;
}

void echo_tensors(exchange one) {
    std::array<tensor, 1> room{};
    const auto described = one.tensors(room);
    const std::size_t length = one.request().size();
    EXPECT_TRUE(described);
    if (described) {
        EXPECT_EQ(one.describe(length, *described), status::ok);
    }
    (void)one.reply(length);
}

TEST_P(awaited, requests_in_place_wait_for_slots_and_answers_have_tensors) {
    rig r(GetParam(), echo_tensors);
    coro::calls calls{connect(r, 3)};
    const int count = effort(20);
    int good = 0;
    int left = 10;
    for (std::uint64_t i = 0; i < 10; ++i) talk_in_place(calls, i, count, good, left);
    EXPECT_TRUE(drive(calls, [&] { return left == 0; }));
    EXPECT_EQ(good, 10 * count);
}

coro::detached ask_for_parts(coro::calls& calls, status& ended) {
    const coro::answer got = co_await calls.call(std::span<const std::byte>{}, {.parts = 1});
    ended = got.status();
}

TEST_P(awaited, calls_have_one_answer_and_no_parts) {
    rig r(GetParam());
    coro::calls calls{connect(r, 2)};
    for (int i = 0; i < 5; ++i) {
        status ended = status::ok;
        ask_for_parts(calls, ended);
        EXPECT_TRUE(drive(calls, [&] { return ended != status::ok; }));
        EXPECT_EQ(ended, status::unsupported);
    }
    int good = 0;
    int left = 1;
    talk(calls, 1, 5, good, left);
    EXPECT_TRUE(drive(calls, [&] { return left == 0; }));
    EXPECT_EQ(good, 5) << "its slots are free again";
}

frame ask_lent(coro::calls& calls, std::shared_ptr<region> memory, status& ended) {
    const slice all = memory->whole();
    const coro::answer got = co_await calls.call(all.part(0, 1'000).value(),
                                                 {.response_into = all.part(1'024, 1'000).value()}, std::move(memory));
    ended = got.status();
}

TEST_P(awaited, lent_memory_outlives_a_coroutine_that_is_destroyed_in_flight) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    coro::calls calls{connect(r, 2)};
    auto memory = std::make_shared<region>(r.ctx().allocate(2'048).value());
    const std::weak_ptr<region> seen = memory;
    status ended = status::again;
    const frame asking = ask_lent(calls, std::move(memory), ended);
    {
        exchange request = held.take();
        asking.handle.destroy();
        EXPECT_FALSE(seen.expired());
        (void)calls.poll();  // where the transport lets go at once, the call ends here
        echo(std::move(request));
    }
    EXPECT_TRUE(drive(calls, [&] { return seen.expired(); }));
    EXPECT_EQ(ended, status::again) << "nobody was told";
    int good = 0;
    int left = 1;
    talk(calls, 1, 2, good, left);
    for (int i = 0; i < 2; ++i) {
        exchange request = held.take();
        echo(std::move(request));
        EXPECT_TRUE(drive(calls, [&] { return good == i + 1; }));
    }
}

TEST_P(awaited, a_closed_channel_ends_every_wait) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    int good = 0;
    int left = 5;
    {
        coro::calls calls{connect(r, 2)};
        for (std::uint64_t i = 0; i < 5; ++i) talk(calls, i, 1, good, left);
        ASSERT_TRUE(held.wait_for(2));
        held.clear();
    }
    EXPECT_EQ(left, 0);
}

ACCEL_INSTANTIATE(awaited, all_backends);

}  // namespace
}  // namespace accel::tests
