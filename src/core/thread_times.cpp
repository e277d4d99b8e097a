// SPDX-License-Identifier: Apache-2.0
#include "core/thread_times.hpp"

#include "core/net/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace accel::core {

namespace {

/// Takes the next field, and the spaces before it.
std::string_view next_field(std::string_view& line) noexcept {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::string_view field = line.substr(0, line.find(' '));
    line.remove_prefix(field.size());
    return field;
}

nanoseconds time_of_ticks(std::string_view field) noexcept {
    std::int64_t ticks = 0;
    (void)std::from_chars(field.data(), field.data() + field.size(), ticks);
    return nanoseconds{ticks * (1'000'000'000 / ::sysconf(_SC_CLK_TCK))};
}

}  // namespace

thread_times times_of(pid_t thread) noexcept {
    std::array<char, 64> path{};
    fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/task/{}/stat", thread);
    const unique_fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
    std::array<char, 1024> text;
    const ssize_t got = file.open() ? ::read(file.get(), text.data(), text.size()) : 0;
    if (got <= 0) return {};
    std::string_view line(text.data(), static_cast<std::size_t>(got));
    // The name, in parentheses, may hold anything; 11 fields behind it come utime and stime (proc(5)).
    line.remove_prefix(std::min(line.rfind(')') + 1, line.size()));
    for (int field = 0; field < 11; ++field) (void)next_field(line);
    const std::string_view user = next_field(line);
    const std::string_view kernel = next_field(line);
    return {time_of_ticks(user), time_of_ticks(kernel)};
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
