// SPDX-License-Identifier: Apache-2.0
#include "core/thread_times.hpp"

#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

/// Works for much longer in one place than in the other.
void work(nanoseconds user, nanoseconds kernel) {
    while (times_of_this_thread().kernel < kernel) {
        struct stat about {};
        for (int i = 0; i < 10'000; ++i) ::stat("/proc/self/task/nothing", &about);
    }
    volatile std::uint64_t sum = 0;
    while (times_of_this_thread().user < user)
        for (std::uint64_t i = 0; i < 100'000; ++i) sum = sum + i;
}

/// Its name has all that its line in /proc is parted by.
TEST(thread_times, the_os_reports_times_between_a_thread_s_own_readings) {
    std::thread busy([] {
        constexpr nanoseconds tick = 10ms;
        ::pthread_setname_np(::pthread_self(), "a) b (c 1 2 3");
        work(20 * tick, 5 * tick);
        const thread_times before = times_of_this_thread();
        const thread_times told = times_of(::gettid());
        const thread_times after = times_of_this_thread();
        EXPECT_GT(told.user, before.user - 2 * tick);
        EXPECT_GT(told.kernel, before.kernel - 2 * tick);
        EXPECT_LE(told.user, after.user);
        EXPECT_LE(told.kernel, after.kernel);
    });
    busy.join();
}

TEST(thread_times, a_thread_that_has_ended_has_none) {
    pid_t gone = 0;
    std::thread([&gone] { gone = ::gettid(); }).join();
    const thread_times told = times_of(gone);
    EXPECT_EQ(told.user, 0ns);
    EXPECT_EQ(told.kernel, 0ns);
}

}  // namespace
}  // namespace accel::core
