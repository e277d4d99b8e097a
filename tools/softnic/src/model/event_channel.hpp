// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/device_event.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include <sys/types.h>

namespace accel::softnic {

class event_channel;

/// One wish of the program: to hear of one event of one object, with its own cookie or by an eventfd.
struct event_subscription {
    event_subscription(device_event which, std::shared_ptr<event_channel> on, std::uint64_t chosen)
        : what(which), channel(std::move(on)), cookie(chosen) {}
    ~event_subscription();
    event_subscription(const event_subscription&) = delete;
    event_subscription& operator=(const event_subscription&) = delete;

    const device_event what;
    const std::shared_ptr<event_channel> channel;
    const std::uint64_t cookie;
    int eventfd = -1;      ///< our duplicate of the program's, if it is to be signalled instead
    bool waiting = false;  ///< under the channel's lock: an event without data is there, and stands for all that follow
};

/// What the program reads its DevX events from. The descriptor is an eventfd, so that it can be waited for; events
/// are taken out by read(). Unlike the rest of the model it has a lock of its own, because programs read without the
/// device's. The program owns the descriptor; we keep a duplicate.
class event_channel {
  public:
    /// Events that nobody reads: those behind are lost, and the program hears of it by EOVERFLOW.
    static constexpr std::size_t max_waiting = 4096;
    /// A cookie, and the event itself unless the channel omits it.
    static constexpr std::size_t cookie_bytes = sizeof(std::uint64_t);
    static constexpr std::size_t event_bytes = cookie_bytes + sizeof(event_element);

    /// Throws std::system_error.
    explicit event_channel(bool omits_data);
    ~event_channel();
    event_channel(const event_channel&) = delete;
    event_channel& operator=(const event_channel&) = delete;

    [[nodiscard]] int descriptor() const { return descriptor_; }
    void deliver(const std::shared_ptr<event_subscription>& to, const event_element& event);
    /// Takes one event out. Its bytes, or a negative errno value: EAGAIN there is none, EINVAL it does not fit and
    /// stays, EOVERFLOW (once) events were lost, EIO the device was closed.
    [[nodiscard]] ssize_t read(std::span<std::byte> to);
    [[nodiscard]] bool readable();

    /// The program has closed the descriptor: nothing is delivered any more.
    void close();
    /// The device was closed, but not the descriptor.
    void abandon();
    [[nodiscard]] bool closed();

  private:
    struct entry {
        std::shared_ptr<event_subscription> from;
        event_element element;
    };

    [[nodiscard]] bool has_news() const { return !events_.empty() || overflown_ || abandoned_; }
    void show();

    const bool omits_data_;
    int descriptor_ = -1;
    int own_ = -1;
    std::mutex mutex_;
    std::deque<entry> events_;
    bool overflown_ = false;
    bool abandoned_ = false;
    bool closed_ = false;
    bool shown_ = false;  ///< the descriptor is readable
};

}  // namespace accel::softnic
