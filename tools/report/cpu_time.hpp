// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

#include <sys/types.h>

namespace accel::report {

/// User and system time of all threads of this process so far.
[[nodiscard]] std::chrono::nanoseconds cpu_time() noexcept;

struct cpu_times {
    std::chrono::nanoseconds user{};
    std::chrono::nanoseconds kernel{};
};
/// The two apart.
[[nodiscard]] cpu_times user_and_kernel_time() noexcept;
/// Of those threads of this process whose name begins so: of an emulated device, for one ("softnic").
[[nodiscard]] cpu_times time_of_threads(std::string_view name);

/// Bytes of this process that are in RAM now; 0: /proc does not say.
[[nodiscard]] std::size_t resident_bytes() noexcept;

/// The same of another process of this user; nothing where it is gone.
[[nodiscard]] std::optional<std::chrono::nanoseconds> cpu_time_of(pid_t process) noexcept;

}  // namespace accel::report
