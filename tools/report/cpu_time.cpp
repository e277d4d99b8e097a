// SPDX-License-Identifier: Apache-2.0
#include "report/cpu_time.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

namespace accel::report {

namespace {

std::chrono::nanoseconds duration_of(const timeval& value) noexcept {
    return std::chrono::seconds{value.tv_sec} + std::chrono::microseconds{value.tv_usec};
}

struct thread_ticks {
    std::uint64_t user = 0;
    std::uint64_t kernel = 0;
};

/// Nothing: the thread has another name, or is gone.
std::optional<thread_ticks> ticks_of(const std::filesystem::path& task, std::string_view name) {
    std::ifstream file(task / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t open = line.find('(');
    const std::size_t close = line.rfind(')');  // a name may contain anything
    if (open == std::string::npos || close == std::string::npos) return std::nullopt;
    if (!std::string_view{line}.substr(open + 1).starts_with(name)) return std::nullopt;
    std::istringstream fields(line.substr(close + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;  // user time is the 14th field of all
    thread_ticks out;
    fields >> out.user >> out.kernel;
    return out;
}

std::uint64_t nanoseconds_of(const std::filesystem::path& task) {
    std::ifstream file(task / "schedstat");
    std::uint64_t spent = 0;
    file >> spent;
    return spent;
}

}  // namespace

cpu_times user_and_kernel_time() noexcept {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
    return {duration_of(usage.ru_utime), duration_of(usage.ru_stime)};
}

cpu_times time_of_threads(std::string_view name) {
    cpu_times sum;
    std::error_code gone;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
        const auto ticks = ticks_of(task.path(), name);
        if (!ticks || ticks->user + ticks->kernel == 0) continue;
        // The scheduler knows the sum to the nanosecond, and ticks tell how it is divided.
        const auto whole = static_cast<double>(nanoseconds_of(task.path()));
        const double user = whole * static_cast<double>(ticks->user) / static_cast<double>(ticks->user + ticks->kernel);
        sum.user += std::chrono::nanoseconds{static_cast<std::int64_t>(user)};
        sum.kernel += std::chrono::nanoseconds{static_cast<std::int64_t>(whole - user)};
    }
    return sum;
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
