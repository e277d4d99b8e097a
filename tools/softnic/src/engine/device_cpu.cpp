// SPDX-License-Identifier: Apache-2.0
#include "engine/device_cpu.hpp"

#include <array>

#include <pthread.h>
#include <time.h>
#include <x86intrin.h>

namespace accel::softnic {
namespace {

std::uint64_t time_of(clockid_t clock) {
    timespec spent{};
    if (::clock_gettime(clock, &spent) != 0) return 0;
    return static_cast<std::uint64_t>(spent.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(spent.tv_nsec);
}

/// The threads' clocks, each with `known` set; 0: none yet.
constexpr std::uint64_t known = std::uint64_t{1} << 32;
std::array<std::atomic<std::uint64_t>, 32> clocks{};

}  // namespace

void count_as_device_thread() {
    clockid_t clock{};
    if (::pthread_getcpuclockid(::pthread_self(), &clock) != 0) return;
    for (auto& each : clocks) {
        std::uint64_t none = 0;
        if (each.compare_exchange_strong(none, known | static_cast<std::uint32_t>(clock))) return;
    }
}

std::uint64_t device_threads_cpu_ns() {
    std::uint64_t all = 0;
    for (const auto& each : clocks) {
        const std::uint64_t clock = each.load(std::memory_order_relaxed);
        if (clock != 0) all += time_of(static_cast<clockid_t>(static_cast<std::uint32_t>(clock)));
    }
    return all;
}

helped_time::helped_time() : first_cycles_(cycles()), first_ns_(time_of(CLOCK_MONOTONIC)) {}

std::uint64_t helped_time::cycles() {
    return __rdtsc();
}

std::uint64_t helped_time::nanoseconds() const {
    const double passed = static_cast<double>(cycles() - first_cycles_);
    const double share = static_cast<double>(total_.load(std::memory_order_relaxed)) / passed;
    return passed > 0 ? static_cast<std::uint64_t>(share * static_cast<double>(time_of(CLOCK_MONOTONIC) - first_ns_))
                      : 0;
}

}  // namespace accel::softnic
