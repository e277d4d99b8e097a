// SPDX-License-Identifier: Apache-2.0
#include "serving/load/issue_queue.hpp"

#include "report/timetable.hpp"

#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::examples::serving {

issue_queue::issue_queue(std::size_t clients, std::function<void(std::uint64_t)> answered)
    : answered_(std::move(answered)), signal_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), clients_(clients) {}

issue_queue::~issue_queue() {
    ::close(signal_);
}

void issue_queue::add(std::span<const std::uint64_t> ids) {
    const std::chrono::nanoseconds now = report::time_now();
    {
        const std::lock_guard lock(mutex_);
        if (clients_ > 0) {
            if (waiting_.empty() && !ids.empty()) set_signal();
            for (const std::uint64_t id : ids) waiting_.push_back({id, now});
            return;
        }
        unsent_ += ids.size();
    }
    for (const std::uint64_t id : ids) answered_(id);
}

void issue_queue::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    set_signal();
}

std::optional<issued_call> issue_queue::take() {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return std::nullopt;
    const issued_call taken = waiting_.front();
    waiting_.pop_front();
    if (waiting_.empty() && !closed_) clear_signal();
    return taken;
}

bool issue_queue::is_over() const {
    const std::lock_guard lock(mutex_);
    return closed_ && waiting_.empty();
}

void issue_queue::leave() {
    std::deque<issued_call> left;
    {
        const std::lock_guard lock(mutex_);
        if (--clients_ > 0) return;
        left.swap(waiting_);
        unsent_ += left.size();
    }
    for (const issued_call& each : left) answered_(each.id);
}

std::uint64_t issue_queue::unsent() const {
    const std::lock_guard lock(mutex_);
    return unsent_;
}

void issue_queue::set_signal() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(signal_, &one, sizeof one);
}

void issue_queue::clear_signal() const noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(signal_, &count, sizeof count);
}

}  // namespace accel::examples::serving
