// SPDX-License-Identifier: Apache-2.0
#include "fake_clock.hpp"

#include "core/clock.hpp"

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace accel::tests {
namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t start = 1'000 * second;
constexpr std::int64_t step = 1'000;

bool faked = false;
std::int64_t time_now = start;

}  // namespace

fake_clock::fake_clock() {
    core::count_no_ticks();
    time_now = start;
    faked = true;
}
fake_clock::~fake_clock() {
    faked = false;
}
void fake_clock::pass(std::chrono::nanoseconds time) {
    time_now += time.count();
}

namespace {

int read_clock(clockid_t which, timespec* out) {
    if (!faked || which != CLOCK_MONOTONIC) return static_cast<int>(::syscall(SYS_clock_gettime, which, out));
    time_now += step;
    out->tv_sec = time_now / second;
    out->tv_nsec = time_now % second;
    return 0;
}

int sleep_on(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* signals) {
    constexpr std::size_t bytes_of_signals = 8;  // as the kernel counts them
    if (faked && count == 0 && timeout != nullptr) {
        time_now += timeout->tv_sec * second + timeout->tv_nsec;
        return 0;
    }
    timespec left = timeout != nullptr ? *timeout : timespec{};
    return static_cast<int>(
        ::syscall(SYS_ppoll, fds, count, timeout != nullptr ? &left : nullptr, signals, bytes_of_signals));
}

int sleep_on(int epoll, epoll_event* events, int count, int timeout_ms) {
    const int wait = faked ? 0 : timeout_ms;
    const auto ready =
        static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, count, wait, nullptr, std::size_t{0}));
    if (faked && ready == 0 && timeout_ms > 0) time_now += timeout_ms * (second / 1'000);
    return ready;
}

}  // namespace
}  // namespace accel::tests

// Take the place of the C library's, in this program.
extern "C" __attribute__((visibility("default"))) int ppoll(pollfd* fds, nfds_t count, const timespec* timeout,
                                                            const sigset_t* signals) {
    return accel::tests::sleep_on(fds, count, timeout, signals);
}
extern "C" __attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events, int count,
                                                                 int timeout_ms) {
    return accel::tests::sleep_on(epoll, events, count, timeout_ms);
}
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t which, timespec* out) noexcept {
    return accel::tests::read_clock(which, out);
}
