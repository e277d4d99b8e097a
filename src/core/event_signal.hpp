// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/unique_fd.hpp"

#include <accel_transport/options.hpp>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <span>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::core {

/// Makes an eventfd readable.
inline void signal_event(int fd) noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

/// Makes an eventfd or timerfd unreadable again.
inline void clear_event(int fd) noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(fd, &count, sizeof count);
}

/// A descriptor that another thread makes readable.
class wake_signal {
  public:
    void set() noexcept { signal_event(fd_.get()); }
    void clear() noexcept { clear_event(fd_.get()); }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] bool open() const noexcept { return fd_.open(); }
    /// Why it is not open, as errno.
    [[nodiscard]] int failure() const noexcept { return fd_.failure(); }

  private:
    unique_fd fd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

/// Sleeps until one of `fds` is ready or `deadline` has passed; may return early.
inline void sleep_on(std::span<pollfd> fds, nanoseconds deadline) noexcept {
    timespec left{};
    const timespec* bound = nullptr;
    if (deadline != never) {
        const nanoseconds rest = std::max(deadline - now(), nanoseconds{0});
        left.tv_sec = static_cast<std::time_t>(rest.count() / 1'000'000'000);
        left.tv_nsec = static_cast<long>(rest.count() % 1'000'000'000);
        bound = &left;
    }
    ::ppoll(fds.data(), fds.size(), bound, nullptr);
}

/// For a loop that spins while it waits: pauses, and sometimes yields the processor, perhaps to the thread
/// that is waited for. `busy` waits own a core and yield only after a long silence, so that there is no
/// system call between messages that come at once. They do not pause at first, either: a pause may take as long as the
/// way of a message between two cores.
class spinner {
  public:
    explicit spinner(poll_mode mode) noexcept
        : pauses_between_yields_(mode == poll_mode::busy ? 4096 : 16),
          looks_in_a_row_(mode == poll_mode::busy ? 64 : 0) {}
    /// Something has come.
    void restart() noexcept { pauses_ = 0; }
    void pause() noexcept {
        if (++pauses_ == pauses_between_yields_) {
            pauses_ = 0;
            ::sched_yield();
            return;
        }
        if (pauses_ <= looks_in_a_row_) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

  private:
    std::uint32_t pauses_between_yields_;
    std::uint32_t looks_in_a_row_;
    std::uint32_t pauses_ = 0;
};

}  // namespace accel::core
