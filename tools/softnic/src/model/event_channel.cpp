// SPDX-License-Identifier: Apache-2.0
#include "model/event_channel.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

/// A program may have read the descriptor itself, or filled it. Neither must keep the device waiting.
bool is_ready(int descriptor, short direction) {
    pollfd entry{descriptor, direction, 0};
    return ::poll(&entry, 1, 0) == 1 && (entry.revents & direction) != 0;
}

void signal_eventfd(int descriptor) {
    const std::uint64_t one = 1;
    if (!is_ready(descriptor, POLLOUT)) return;
    [[maybe_unused]] const ssize_t done = ::write(descriptor, &one, sizeof one);
}

void clear_eventfd(int descriptor) {
    std::uint64_t count = 0;
    if (!is_ready(descriptor, POLLIN)) return;
    [[maybe_unused]] const ssize_t done = ::read(descriptor, &count, sizeof count);
}

}  // namespace

event_subscription::~event_subscription() {
    if (eventfd >= 0) ::close(eventfd);
}

event_channel::event_channel(bool omits_data) : omits_data_(omits_data), descriptor_(::eventfd(0, EFD_CLOEXEC)) {
    if (descriptor_ >= 0) own_ = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
    if (own_ >= 0) return;
    const int problem = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw std::system_error(problem, std::generic_category(), "event channel");
}

event_channel::~event_channel() {
    ::close(own_);
}

/// The descriptor is readable as long as there is something to hear.
void event_channel::show() {
    if (shown_ == has_news()) return;
    shown_ = !shown_;
    if (shown_)
        signal_eventfd(own_);
    else
        clear_eventfd(own_);
}

void event_channel::deliver(const std::shared_ptr<event_subscription>& to, const event_element& event) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (to->eventfd >= 0) return signal_eventfd(to->eventfd);
    if (omits_data_ && to->waiting) return;
    if (events_.size() == max_waiting) {
        overflown_ = true;
    } else {
        events_.push_back({to, event});
        to->waiting = true;
    }
    show();
}

ssize_t event_channel::read(std::span<std::byte> to) {
    const std::lock_guard lock(mutex_);
    if (abandoned_) return -EIO;
    if (overflown_) {
        overflown_ = false;
        show();
        return -EOVERFLOW;
    }
    if (events_.empty()) return -EAGAIN;
    const std::size_t size = omits_data_ ? cookie_bytes : event_bytes;
    if (to.size() < size) return -EINVAL;
    const entry& first = events_.front();
    std::memcpy(to.data(), &first.from->cookie, cookie_bytes);
    if (!omits_data_) std::memcpy(to.data() + cookie_bytes, first.element.data(), first.element.size());
    first.from->waiting = false;
    events_.pop_front();
    show();
    return static_cast<ssize_t>(size);
}

bool event_channel::readable() {
    const std::lock_guard lock(mutex_);
    return has_news();
}

void event_channel::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    events_.clear();
}

void event_channel::abandon() {
    const std::lock_guard lock(mutex_);
    closed_ = abandoned_ = true;
    events_.clear();
    show();
}

bool event_channel::closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
}

}  // namespace accel::softnic
