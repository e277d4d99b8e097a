// SPDX-License-Identifier: Apache-2.0
#include "core/log_limiter.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

class log_limiter_test : public ::testing::Test {
  protected:
    /// How many of `lines` lines pass at `at`.
    int passed(const char* reason, const std::string& peer, int lines, nanoseconds at = 5s) {
        int count = 0;
        for (int i = 0; i < lines; ++i) count += limiter.allow(reason, peer, at).has_value() ? 1 : 0;
        return count;
    }

    static constexpr int of_peer = log_limiter::lines_of_peer;
    static constexpr int of_reason = log_limiter::lines_of_reason;
    const char* const refused = "refused";
    const char* const dropped = "dropped";
    log_limiter limiter;
};

TEST_F(log_limiter_test, lines_of_one_peer_are_limited_per_second) {
    EXPECT_EQ(passed(refused, "one", 1'000, 5s), of_peer);
    EXPECT_EQ(passed(refused, "one", 1'000, 5'999ms), 0);
    EXPECT_EQ(passed(refused, "one", 1'000, 6s), of_peer);
}

TEST_F(log_limiter_test, a_flood_silences_no_other_peer_and_no_other_reason) {
    EXPECT_EQ(passed(refused, "one", 1'000), of_peer);
    EXPECT_EQ(passed(refused, "two", 1), 1);
    EXPECT_EQ(passed(dropped, "one", 1), 1);
}

TEST_F(log_limiter_test, lines_of_one_reason_are_limited_for_any_number_of_peers) {
    int count = 0;
    for (int i = 0; i < 10'000; ++i) count += passed(refused, "peer " + std::to_string(i), 3);
    EXPECT_EQ(count, of_reason);
}

/// Lines in random order over some seconds; a few of those that were allowed are lost.
TEST_F(log_limiter_test, each_line_is_passed_or_told_with_a_later_one_of_its_reason) {
    std::mt19937 random(1);
    const std::array reasons{refused, dropped};
    std::array<std::uint64_t, 2> kept_back{};
    for (int line = 0; line < 20'000; ++line) {
        const std::size_t of = random() % 2;
        const std::string peer = "peer " + std::to_string(random() % 5);
        const auto told = limiter.allow(reasons[of], peer, 5s + line * 1ms);
        if (!told) {
            ++kept_back[of];
            continue;
        }
        ASSERT_EQ(*told, kept_back[of]) << "line " << line;
        const bool lost = random() % 8 == 0;
        if (lost) limiter.keep_back(reasons[of], *told);
        if (!lost) kept_back[of] = 0;
    }
}

TEST_F(log_limiter_test, reasons_beyond_the_table_are_still_limited) {
    std::vector<std::string> texts(1'000, "reason");
    int count = 0;
    for (const std::string& each : texts) count += passed(each.data(), "one", of_peer);
    EXPECT_LE(count, 64 * of_reason);
    EXPECT_GE(count, 63 * of_peer);
}

TEST_F(log_limiter_test, threads_together_pass_no_more_than_one_would) {
    std::atomic<int> count{0};
    std::atomic<std::uint64_t> told{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 10'000; ++k) {
                const auto allowed = limiter.allow(refused, "one", 5s);
                count += allowed ? 1 : 0;
                told += allowed.value_or(0);
            }
        });
    }
    for (auto& each : threads) each.join();
    EXPECT_EQ(count, of_peer);
    EXPECT_EQ(told + limiter.allow(refused, "one", 6s).value_or(0), std::uint64_t{40'000 - of_peer});
}

}  // namespace
}  // namespace accel::core
