// SPDX-License-Identifier: Apache-2.0
#include "report/cpu_time.hpp"

#include <cstdio>

#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

namespace accel::report {

namespace {

std::chrono::nanoseconds duration_of(const timeval& value) noexcept {
    return std::chrono::seconds{value.tv_sec} + std::chrono::microseconds{value.tv_usec};
}

}  // namespace

cpu_times user_and_kernel_time() noexcept {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
    return {duration_of(usage.ru_utime), duration_of(usage.ru_stime)};
}

std::chrono::nanoseconds cpu_time() noexcept {
    const cpu_times both = user_and_kernel_time();
    return both.user + both.kernel;
}

std::size_t resident_bytes() noexcept {
    std::FILE* const file = std::fopen("/proc/self/statm", "re");
    if (file == nullptr) return 0;
    unsigned long all = 0;
    unsigned long resident = 0;
    const bool read = std::fscanf(file, "%lu %lu", &all, &resident) == 2;
    (void)std::fclose(file);
    return read ? resident * static_cast<unsigned long>(::sysconf(_SC_PAGESIZE)) : 0;
}

std::optional<std::chrono::nanoseconds> cpu_time_of(pid_t process) noexcept {
    clockid_t clock{};
    timespec spent{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &spent) != 0) return std::nullopt;
    return std::chrono::seconds{spent.tv_sec} + std::chrono::nanoseconds{spent.tv_nsec};
}

}  // namespace accel::report
