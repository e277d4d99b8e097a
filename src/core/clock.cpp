// SPDX-License-Identifier: Apache-2.0
#include "core/clock.hpp"

#include "core/net/unique_fd.hpp"

#include <array>
#include <atomic>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace accel::core {

#if defined(__x86_64__)
namespace {

std::atomic<bool> counts_ticks{true};

/// The OS keeps time by this counter only where it is steady and the same on all processors.
bool kernel_counts_ticks() noexcept {
    const unique_fd file(
        ::open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC));
    std::array<char, 4> name{};
    const ssize_t got = file.open() ? ::read(file.get(), name.data(), name.size()) : -1;
    return got >= 3 && std::string_view(name.data(), static_cast<std::size_t>(got)) == "tsc\n";
}

/// Between the two readings of the counter; more: something came between.
constexpr std::uint64_t ticks_of_a_reading = 4'000;

}  // namespace

void count_no_ticks() noexcept {
    counts_ticks = false;
    clock_of_this_thread = {};
}

nanoseconds read_kernel_clock(tick_scale& scale) noexcept {
    static const bool same = kernel_counts_ticks();
    const std::uint64_t before = __builtin_ia32_rdtsc();
    const nanoseconds seen = kernel_now();
    if (!same || !counts_ticks.load(std::memory_order_relaxed)) return seen;
    const std::uint64_t after = __builtin_ia32_rdtsc();
    const bool at_once = after - before <= ticks_of_a_reading;
    return nanoseconds{at_once ? scale.set(after, seen.count()) : scale.not_before(seen.count())};
}

#endif

}  // namespace accel::core
