// SPDX-License-Identifier: Apache-2.0
#include "core/event_set.hpp"

#include <chrono>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::core {
namespace {

constexpr std::chrono::milliseconds soon{1};
constexpr std::chrono::hours far_away{1};
constexpr std::chrono::seconds patient{20};

bool is_timer_told(const event_set& which, std::chrono::milliseconds within) {
    pollfd one{.fd = which.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(within.count())) == 1;
}

TEST(event_set, an_earlier_time_replaces_a_later_one) {
    event_set one;
    one.set_timer(now() + far_away);
    one.set_timer(now() + soon);
    EXPECT_TRUE(is_timer_told(one, patient));
}

TEST(event_set, an_earlier_time_stays_until_it_passes) {
    event_set one;
    one.set_timer(now() + 20 * soon);
    one.set_timer(never);
    EXPECT_TRUE(is_timer_told(one, patient)) << "moving it would cost a system call";
    one.set_timer(never);
    EXPECT_FALSE(is_timer_told(one, {})) << "it has been told once";
}

TEST(event_set, a_passed_time_makes_room_for_the_next) {
    event_set one;
    one.set_timer(now() + soon);
    ASSERT_TRUE(is_timer_told(one, patient));
    one.set_timer(now() + far_away);
    EXPECT_FALSE(is_timer_told(one, {}));
    one.set_timer(now() + soon);
    EXPECT_TRUE(is_timer_told(one, patient));
}

/// An epoll does not take a file.
unique_fd never_watched() {
    unique_fd made(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(made.open());
    return made;
}

TEST(event_set, an_unwatchable_source_is_polled_until_it_is_removed) {
    event_set one;
    const unique_fd unheard = never_watched();
    one.add(unheard.get());
    one.set_timer(never);
    ASSERT_TRUE(is_timer_told(one, patient));
    one.set_timer(never);
    ASSERT_TRUE(is_timer_told(one, patient));
    one.remove(unheard.get());
    one.set_timer(never);
    EXPECT_FALSE(is_timer_told(one, 20 * soon));
}

TEST(event_set, an_unwatchable_source_is_watched_as_soon_as_possible) {
    event_set one;
    const unique_fd source = never_watched();
    one.add(source.get());
    const unique_fd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    ASSERT_EQ(::dup3(event.get(), source.get(), O_CLOEXEC), source.get());
    one.set_timer(never);
    EXPECT_FALSE(is_timer_told(one, 20 * soon));
    ASSERT_EQ(::eventfd_write(event.get(), 1), 0);
    EXPECT_TRUE(is_timer_told(one, patient));
}

}  // namespace
}  // namespace accel::core
