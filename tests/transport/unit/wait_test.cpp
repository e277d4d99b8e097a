// SPDX-License-Identifier: Apache-2.0
// What a thread costs that waits for completions: an adaptive or blocking channel sleeps.
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

namespace accel::tests {
namespace {

/// What a wait has cost its thread. A busy machine gives a thread less processor time than it wants, never more; and
/// one that never sleeps gives up no processor by itself.
class thread_costs {
  public:
    void expect_sleep() const {
        EXPECT_LT(time_of_this_thread() - time_, patience(20ms));
        EXPECT_GT(sleeps_of_this_thread(), sleeps_) << "it did not sleep at all";
    }

  private:
    [[nodiscard]] static nanoseconds time_of_this_thread() {
        timespec used{};
        EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
        return std::chrono::seconds{used.tv_sec} + nanoseconds{used.tv_nsec};
    }
    [[nodiscard]] static long sleeps_of_this_thread() {
        rusage used{};
        EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0);
        return used.ru_nvcsw;
    }
    nanoseconds time_ = time_of_this_thread();
    long sleeps_ = sleeps_of_this_thread();
};

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
            completion none;
            const thread_costs of_a_wait;
            EXPECT_EQ(client.wait({&none, 1}, long_wait), 0U) << "nobody has asked";
            of_a_wait.expect_sleep();
            std::thread answering([&] { far.answer_after(long_wait); });
            const thread_costs of_a_call;
            EXPECT_TRUE(client.call({}));
            of_a_call.expect_sleep();
            answering.join();
        }
    }
}

}  // namespace
}  // namespace accel::tests
