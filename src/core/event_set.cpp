// SPDX-License-Identifier: Apache-2.0
#include "core/event_set.hpp"

#include "core/net/descriptor_error.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>

#include <sys/epoll.h>
#include <sys/timerfd.h>

namespace accel::core {
namespace {

constexpr nanoseconds deaf_interval = std::chrono::milliseconds{5};

bool listens_to(int epoll, int fd) noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest) == 0;
}

}  // namespace

event_set::event_set() noexcept : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_.open()) timer_ = unique_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    failure_ = epoll_.open() ? timer_.failure() : epoll_.failure();
    if (failure_ == 0 && !listens_to(epoll_.get(), timer_.get())) failure_ = errno;
}

result<void> event_set::check() const {
    if (failure_ == 0) return {};
    return no_descriptor("for a channel", failure_);
}

void event_set::add(int fd) noexcept {
    if (fd < 0 && failure_ == 0) failure_ = -fd;
    watch(fd);
}

void event_set::watch(int fd) noexcept {
    if (listens_to(epoll_.get(), fd)) return;
    if (unwatched_count_ < unwatched_.size()) unwatched_[unwatched_count_++] = fd;
}

/// What was missing may be there now.
[[gnu::noinline]] void event_set::watch_others() noexcept {
    for (std::size_t left = std::exchange(unwatched_count_, 0), i = 0; i < left; ++i) watch(unwatched_[i]);
}

void event_set::remove(int fd) noexcept {
    const auto kept = std::remove(unwatched_.begin(), unwatched_.begin() + unwatched_count_, fd);
    unwatched_count_ = static_cast<std::size_t>(kept - unwatched_.begin());
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

/// A system call only where the timer would be late, or has been readable.
void event_set::set_timer(nanoseconds when) noexcept {
    if (unwatched_count_ > 0) [[unlikely]] {
        watch_others();
        if (unwatched_count_ > 0) when = std::min(when, now() + deaf_interval);
    }
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
