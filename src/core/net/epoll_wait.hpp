// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <ctime>

#include <sys/epoll.h>

namespace accel::core {

/// For `wait_on`: does not sleep.
inline constexpr nanoseconds at_once{0};

/// As epoll_wait, until a point in time. EINTR ends it early.
template <std::size_t Size>
[[nodiscard]] int wait_on(int epoll, std::array<epoll_event, Size>& events, nanoseconds until) noexcept {
    constexpr std::chrono::minutes longest_wait{1};
    constexpr int most = Size;
    if (until == at_once) return ::epoll_wait(epoll, events.data(), most, 0);
    const bool bounded = until != never;
    const nanoseconds rest = bounded ? std::max(until - now(), nanoseconds{0}) : nanoseconds{longest_wait};
    const timespec left{static_cast<std::time_t>(rest.count() / 1'000'000'000),
                        static_cast<long>(rest.count() % 1'000'000'000)};
    const int count = ::epoll_pwait2(epoll, events.data(), most, bounded ? &left : nullptr, nullptr);
    if (count >= 0 || errno == EINTR) return count;
    // Before Linux 5.11, or forbidden by a container.
    const auto left_ms =
        std::chrono::ceil<std::chrono::milliseconds>(std::min<nanoseconds>(rest, longest_wait)).count();
    return ::epoll_wait(epoll, events.data(), most, static_cast<int>(left_ms));
}

}  // namespace accel::core
