// SPDX-License-Identifier: Apache-2.0
#include "core/log_limiter.hpp"

#include <atomic>
#include <cstdint>
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

TEST_F(log_limiter_test, a_peer_that_floods_silences_no_other_peer) {
    EXPECT_EQ(passed(refused, "one", 1'000), of_peer);
    EXPECT_EQ(passed(refused, "two", 1), 1);
}

TEST_F(log_limiter_test, a_reason_that_floods_silences_no_other_reason) {
    EXPECT_EQ(passed(refused, "one", 1'000), of_peer);
    EXPECT_EQ(passed(dropped, "one", 1), 1);
}

TEST_F(log_limiter_test, lines_of_one_reason_are_limited_for_any_number_of_peers) {
    int count = 0;
    for (int i = 0; i < 10'000; ++i) count += passed(refused, "peer " + std::to_string(i), 3);
    EXPECT_EQ(count, of_reason);
}

TEST_F(log_limiter_test, the_next_line_tells_the_number_of_suppressed_lines) {
    EXPECT_EQ(limiter.allow(refused, "one", 5s), 0U);
    passed(refused, "one", 100);
    EXPECT_EQ(limiter.allow(refused, "one", 6s), std::uint64_t{101 - of_peer});
    EXPECT_EQ(limiter.allow(refused, "one", 6s), 0U) << "told once";
}

TEST_F(log_limiter_test, a_lost_line_passes_its_count_to_the_next) {
    passed(refused, "one", of_peer + 7);
    const auto told = limiter.allow(refused, "one", 6s);
    ASSERT_EQ(told, 7U);
    limiter.keep_back(refused, *told);
    EXPECT_EQ(limiter.allow(refused, "one", 6s), 7U);
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
