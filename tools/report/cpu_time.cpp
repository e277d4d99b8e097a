// SPDX-License-Identifier: Apache-2.0
#include "report/cpu_time.hpp"

#include <sys/resource.h>
#include <time.h>

namespace accel::report {

std::chrono::nanoseconds cpu_time() noexcept {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
    return std::chrono::seconds{usage.ru_utime.tv_sec + usage.ru_stime.tv_sec} +
           std::chrono::microseconds{usage.ru_utime.tv_usec + usage.ru_stime.tv_usec};
}

std::optional<std::chrono::nanoseconds> cpu_time_of(pid_t process) noexcept {
    clockid_t clock{};
    timespec spent{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &spent) != 0) return std::nullopt;
    return std::chrono::seconds{spent.tv_sec} + std::chrono::nanoseconds{spent.tv_nsec};
}

}  // namespace accel::report
