// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <sys/types.h>

namespace accel::core {

struct thread_times {
    nanoseconds user{};
    nanoseconds kernel{};
};

/// Processor time of a thread of this process so far, in the OS's ticks (10 ms). Zeroes for one that has ended.
[[nodiscard]] thread_times times_of(pid_t thread) noexcept;
/// The exact times of the calling thread, never less than `times_of` has said.
[[nodiscard]] thread_times times_of_this_thread() noexcept;

}  // namespace accel::core
