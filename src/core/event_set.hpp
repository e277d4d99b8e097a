// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/unique_fd.hpp"

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>

namespace accel::core {

/// The sources that make a channel's descriptor readable: those that were added, and a timer.
class event_set {
  public:
    event_set() noexcept;

    /// Whether it can be used: a descriptor or memory may have been missing.
    [[nodiscard]] result<void> check() const;
    [[nodiscard]] int fd() const noexcept { return epoll_.get(); }
    /// If the system refuses that, the timer stands in: it looks every few milliseconds, until the source can be
    /// watched or is removed. Negative: of a source that has none.
    void add(int fd) noexcept;
    void remove(int fd) noexcept;
    /// Readable from `when` on. It may be so once before, at an earlier time that was set: a timer that moved with each
    /// call would cost two system calls a call. `never`: not by the timer, apart from that.
    void set_timer(nanoseconds when) noexcept;

  private:
    static constexpr std::size_t most_unwatched = 32;  ///< more than any user adds

    void watch(int fd) noexcept;
    void watch_others() noexcept;

    unique_fd epoll_;
    unique_fd timer_;
    nanoseconds timer_set_ = never;
    std::size_t unwatched_count_ = 0;
    std::array<int, most_unwatched> unwatched_{};  ///< sources that the system has refused
    int failure_ = 0;                              ///< errno
};

}  // namespace accel::core
