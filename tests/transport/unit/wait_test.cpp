// SPDX-License-Identifier: Apache-2.0
// What a thread costs that waits for completions: an adaptive or blocking channel sleeps.
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <time.h>

namespace accel::tests {
namespace {

/// A busy machine gives a thread less processor time than it wants, never more.
nanoseconds time_of_this_thread() {
    timespec used{};
    EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    return std::chrono::seconds{used.tv_sec} + nanoseconds{used.tv_nsec};
}

/// Answers are held back until somebody lets them go.
struct holding_server {
    explicit holding_server(context& ctx, const std::string& at) {
        server_options options;
        options.security.insecure = true;
        options.poll = poll_mode::block;
        serving = server::listen(
                      ctx, {at}, [this](exchange request) { hold(std::move(request)); }, options)
                      .value();
    }
    void hold(exchange request) {
        const std::lock_guard lock(mutex);
        held = std::move(request);
        arrived.notify_one();
    }
    void answer_after(nanoseconds time) {
        std::unique_lock lock(mutex);
        ASSERT_TRUE(arrived.wait_for(lock, until_hung(), [this] { return held.has_value(); }));
        std::this_thread::sleep_for(time);
        EXPECT_EQ(held->reply(std::size_t{0}), status::ok);
        held.reset();
    }
    std::mutex mutex;
    std::condition_variable arrived;
    std::optional<exchange> held;
    std::optional<server> serving;
};

TEST(waiting_thread, a_channel_that_does_not_poll_busily_sleeps_while_nothing_comes) {
    constexpr nanoseconds long_wait = 500ms;
    context ctx = context::open().value();
    for (const std::string at : {"local://waiting_thread", "tcp://127.0.0.1:0"}) {
        holding_server far(ctx, at);
        for (const poll_mode mode : {poll_mode::adaptive, poll_mode::block}) {
            SCOPED_TRACE(at + (mode == poll_mode::block ? ", block" : ", adaptive"));
            channel_options options;
            options.security.insecure = true;
            options.poll = mode;
            channel client = channel::connect(ctx, far.serving->endpoints().at(0), options).value();
            nanoseconds before = time_of_this_thread();
            completion none;
            EXPECT_EQ(client.wait({&none, 1}, long_wait), 0U) << "nobody has asked";
            EXPECT_LT(time_of_this_thread() - before, long_wait / 4);
            std::thread answering([&] { far.answer_after(long_wait); });
            before = time_of_this_thread();
            EXPECT_TRUE(client.call({}));
            EXPECT_LT(time_of_this_thread() - before, long_wait / 4);
            answering.join();
        }
    }
}

}  // namespace
}  // namespace accel::tests
