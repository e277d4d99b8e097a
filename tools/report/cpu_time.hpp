// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include <sys/types.h>

namespace accel::report {

/// User and system time of all threads of this process so far.
[[nodiscard]] std::chrono::nanoseconds cpu_time() noexcept;

/// The same of another process of this user; nothing where it is gone.
[[nodiscard]] std::optional<std::chrono::nanoseconds> cpu_time_of(pid_t process) noexcept;

}  // namespace accel::report
