// SPDX-License-Identifier: Apache-2.0
#include "core/server/thread_times.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace accel::core {

thread_times times_of(pid_t thread) {
    std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
    std::string line;
    std::getline(file, line);
    // The name, in parentheses, may hold anything; 11 fields behind it come utime and stime (proc(5)).
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    std::string skipped;
    for (int field = 0; field < 11; ++field) fields >> skipped;
    std::int64_t user = 0;
    std::int64_t kernel = 0;
    if (!(fields >> user >> kernel)) return {};
    const std::int64_t tick = 1'000'000'000 / ::sysconf(_SC_CLK_TCK);
    return {nanoseconds{user * tick}, nanoseconds{kernel * tick}};
}

thread_times times_of_this_thread() noexcept {
    rusage used{};
    ::getrusage(RUSAGE_THREAD, &used);
    const auto duration = [](const timeval& value) {
        return std::chrono::seconds{value.tv_sec} + std::chrono::microseconds{value.tv_usec};
    };
    return {duration(used.ru_utime), duration(used.ru_stime)};
}

}  // namespace accel::core
