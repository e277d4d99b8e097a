// SPDX-License-Identifier: Apache-2.0
#include "core/client/event_set.hpp"

#include <ctime>

#include <sys/epoll.h>
#include <sys/timerfd.h>

namespace accel::core {

event_set::event_set() noexcept
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    add(timer_.get());
}

void event_set::add(int fd) noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &interest);
}

void event_set::remove(int fd) noexcept {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

/// A system call only where the timer would be late, or has been readable.
void event_set::set_timer(nanoseconds when) noexcept {
    if (when == timer_set_ || (when > timer_set_ && timer_set_ > now())) return;
    timer_set_ = when;
    itimerspec at{};
    if (when != never) {
        at.it_value.tv_sec = static_cast<std::time_t>(when.count() / 1'000'000'000);
        at.it_value.tv_nsec = static_cast<long>(when.count() % 1'000'000'000);
    }
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

}  // namespace accel::core
