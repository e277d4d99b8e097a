// SPDX-License-Identifier: Apache-2.0
#include "core/clock.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace accel {
namespace {

constexpr std::int64_t reading_ns = 100'000;
constexpr std::int64_t hour_ns = 3'600'000'000'000;

/// A counter with 5 ticks in 2 ns, and the kernel's clock beside it.
struct two_clocks {
    core::tick_scale scale;
    std::uint64_t ticks = 1'000'000;
    std::int64_t kernel_ns = hour_ns;

    void pass(std::int64_t time_ns) {
        ticks += static_cast<std::uint64_t>(time_ns) * 5 / 2;
        kernel_ns += time_ns;
    }
    std::int64_t read_both() { return scale.set(ticks, kernel_ns); }
    /// As `core::now`.
    std::int64_t tell() {
        const std::uint64_t passed = scale.passed_at(ticks);
        return scale.known() && scale.holds_for(passed) ? scale.nanoseconds_after(passed) : read_both();
    }
    void learn() {
        read_both();
        pass(2'000'000);
        read_both();
    }
};

TEST(clock, ticks_count_after_a_millisecond_of_measuring) {
    two_clocks both;
    both.read_both();
    both.pass(900'000);
    both.read_both();
    EXPECT_FALSE(both.scale.known());
    both.pass(100'000);
    both.read_both();
    EXPECT_TRUE(both.scale.known());
    EXPECT_TRUE(both.scale.holds_for(400'000));
    EXPECT_FALSE(both.scale.holds_for(600'000)) << "longer than 0.2 ms";
}

TEST(clock, counted_ticks_tell_the_kernels_time) {
    two_clocks both;
    both.learn();
    for (int i = 0; i < 30'000; ++i) {
        both.pass(7'019);
        const std::int64_t late = both.kernel_ns - both.tell();
        ASSERT_GE(late, 0) << i;
        ASSERT_LE(late, 16) << i;
    }
}

TEST(clock, the_clock_never_goes_back_when_the_os_slows_its_own) {
    two_clocks both;
    both.learn();
    std::int64_t last = both.tell();
    for (int i = 0; i < 4'000; ++i) {
        // The last time that is counted, then one that is read.
        for (const std::int64_t passing : {reading_ns - 10, std::int64_t{20}}) {
            both.pass(passing);
            both.kernel_ns -= passing / 2'500;  // 400 ppm
            const std::int64_t told = both.tell();
            ASSERT_GE(told, last) << i;
            ASSERT_LE(told - both.kernel_ns, 10'000) << i;
            last = told;
        }
    }
}

TEST(clock, a_counter_that_jumped_is_measured_anew) {
    two_clocks both;
    both.learn();
    both.pass(20'000'000);
    both.ticks += 10'000'000;  // a fifth more than passed
    both.read_both();
    EXPECT_FALSE(both.scale.known());
    both.learn();
    EXPECT_TRUE(both.scale.known());
    both.pass(reading_ns / 2);
    EXPECT_NEAR(static_cast<double>(both.tell()), static_cast<double>(both.kernel_ns), 8);
}

TEST(clock, a_counter_that_stands_still_is_not_used) {
    two_clocks both;
    both.read_both();
    both.kernel_ns += 5'000'000;
    EXPECT_EQ(both.read_both(), both.kernel_ns);
    EXPECT_FALSE(both.scale.known());
}

TEST(clock, time_agrees_with_the_kernels) {
    constexpr core::nanoseconds tolerance = std::chrono::microseconds{50};
    const core::nanoseconds until = core::kernel_now() + std::chrono::milliseconds{30};
    core::nanoseconds last{};
    core::nanoseconds before = core::kernel_now();
    while (before < until) {
        const core::nanoseconds told = core::now();
        const core::nanoseconds after = core::kernel_now();
        ASSERT_GE(told, before - tolerance);
        ASSERT_LE(told, after + tolerance);
        ASSERT_GE(told, last);
        last = told;
        before = after;
    }
}

}  // namespace
}  // namespace accel
