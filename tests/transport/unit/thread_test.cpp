// SPDX-License-Identifier: Apache-2.0
#include "core/thread.hpp"

#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;
using tests::patience;

std::atomic<int> handled{0};

/// This thread blocks SIGUSR1, so that the kernel hands it to a thread of the library if any would take it.
class signal_for_nobody {
  public:
    signal_for_nobody() {
        handled = 0;
        struct sigaction count {};
        count.sa_handler = [](int) { ++handled; };
        ::sigaction(SIGUSR1, &count, &action_);
        sigset_t one = only();
        ::pthread_sigmask(SIG_BLOCK, &one, &mask_);
    }
    ~signal_for_nobody() {
        sigset_t one = only();
        const timespec at_once{};
        while (::sigtimedwait(&one, nullptr, &at_once) > 0) continue;
        ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        ::sigaction(SIGUSR1, &action_, nullptr);
    }
    signal_for_nobody(const signal_for_nobody&) = delete;
    signal_for_nobody& operator=(const signal_for_nobody&) = delete;

  private:
    static sigset_t only() {
        sigset_t one;
        ::sigemptyset(&one);
        ::sigaddset(&one, SIGUSR1);
        return one;
    }
    struct sigaction action_ {};
    sigset_t mask_{};
};

bool pending(int signal) {
    sigset_t waiting;
    ::sigpending(&waiting);
    return ::sigismember(&waiting, signal) == 1;
}

TEST(library_threads, library_threads_take_no_signals_of_the_application) {
    auto ctx = context::open({.log = log_level::off}).value();
    server_options options;
    options.security.insecure = true;
    auto serving = server::listen(
        ctx, {"tcp://" + tests::own_loopback() + ":0"}, [](exchange) {}, options);
    ASSERT_TRUE(serving.ok()) << serving.error().message;
    channel_options client;
    client.security.insecure = true;
    client.connect_timeout = patience(10s);
    auto channel = channel::connect(ctx, serving->endpoints().at(0), client);
    ASSERT_TRUE(channel.ok()) << channel.error().message;

    const signal_for_nobody blocked;  // after the threads have begun, which inherit what is blocked
    ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(handled, 0);
    EXPECT_TRUE(pending(SIGUSR1));
}

TEST(library_threads, library_threads_have_a_name) {
    std::atomic<bool> stop{false};
    std::thread named = start_thread("accel-test", [&] {
        while (!stop) std::this_thread::sleep_for(1ms);
    });
    std::string name(16, '\0');
    EXPECT_EQ(::pthread_getname_np(named.native_handle(), name.data(), name.size()), 0);
    EXPECT_STREQ(name.c_str(), "accel-test");
    stop = true;
    named.join();
}

}  // namespace
}  // namespace accel::core
