// SPDX-License-Identifier: Apache-2.0
#include "report/child_process.hpp"
#include "report/cpu_time.hpp"
#include "report/durations.hpp"
#include "report/histogram.hpp"
#include "report/percentiles.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"
#include "report/timetable.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

namespace accel::report {
namespace {

using namespace std::chrono_literals;

using times = std::vector<std::chrono::nanoseconds>;

/// The value that at least `percent` of all are not above.
std::chrono::nanoseconds expected_percentile(times all, double percent) {
    if (all.empty()) return 0ns;
    std::ranges::sort(all);
    std::size_t rank = 1;
    while (static_cast<double>(rank) * 100 < percent * static_cast<double>(all.size())) ++rank;
    return all[rank - 1];
}

/// Times of any size, most of them short.
times random_times(std::mt19937_64& random, std::size_t count, std::chrono::nanoseconds longest) {
    times out(count);
    const auto most = static_cast<std::uint64_t>(longest.count());
    for (auto& each : out) each = std::chrono::nanoseconds{random() % (most >> random() % 36)};
    return out;
}

TEST(percentile, a_percentile_takes_the_nearest_rank) {
    std::mt19937_64 random(1);
    for (const std::size_t count : {0U, 1U, 2U, 3U, 4U, 100U, 999U, 1'000U}) {
        const times all = random_times(random, count, 1h);
        times sorted = all;
        std::ranges::sort(sorted);
        for (const double percent : {0.0, 0.37, 1.73, 26.61, 51.37, 77.77, 98.73, 99.93, 100.0})
            EXPECT_EQ(percentile(sorted, percent), expected_percentile(all, percent)) << percent << " of " << count;
        const latency_summary seen = summarise(all);
        EXPECT_EQ(seen.p50, percentile(sorted, 50));
        EXPECT_EQ(seen.p90, percentile(sorted, 90));
        EXPECT_EQ(seen.p99, percentile(sorted, 99));
        EXPECT_EQ(seen.p99_9, percentile(sorted, 99.9));
        EXPECT_EQ(seen.max, percentile(sorted, 100));
    }
    // Where the rank is a whole number, which binary fractions miss by a little.
    times all;
    for (int count = 1; count <= 10'000; ++count) {
        all.emplace_back(count);
        for (const int tenths : {500, 900, 990, 999})
            ASSERT_EQ(percentile(all, tenths / 10.0), std::chrono::nanoseconds{(tenths * count + 999) / 1'000})
                << tenths << " of " << count;
    }
}

TEST(median, the_median_is_the_middle_value_or_the_mean_of_two) {
    EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
    EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
    EXPECT_DOUBLE_EQ(median({}), 0);
}

/// Of one client or of several, whose histograms are added.
TEST(histogram, a_histogram_keeps_three_digits_of_every_value) {
    std::mt19937_64 random(1);
    for (const std::size_t count : {0U, 1U, 2U, 10U, 1'000U, 5'000U}) {
        histogram seen;
        times all = random_times(random, count, histogram::longest);
        double sum = 0;
        for (std::size_t i = 0; i < all.size(); i += 100) {
            histogram of_client;
            for (const auto each : std::span{all}.subspan(i).first(std::min<std::size_t>(100, all.size() - i)))
                (i % 200 == 0 ? seen : of_client).record(each);
            seen.add(of_client);
        }
        for (const auto each : all) sum += static_cast<double>(each.count());
        const double mean = count == 0 ? 0 : sum / static_cast<double>(count);
        EXPECT_EQ(seen.count(), count);
        EXPECT_EQ(seen.min(), count == 0 ? 0ns : std::ranges::min(all));
        EXPECT_EQ(seen.max(), count == 0 ? 0ns : std::ranges::max(all));
        EXPECT_NEAR(seen.mean_ns(), mean, mean / 1'000);
        for (const double percent : {0.0, 1.73, 51.37, 90.21, 98.73, 99.93, 100.0}) {
            const auto exact = expected_percentile(all, percent);
            EXPECT_GE(seen.value_at(percent), exact) << percent << " of " << count;
            EXPECT_LE(seen.value_at(percent) - exact, exact / 1'000) << percent << " of " << count;
            EXPECT_LE(seen.value_at(percent), seen.max());
        }
    }
    EXPECT_NE(histogram{}.percentiles_text().find("Total count    =            0]"), std::string::npos);
}

TEST(histogram, short_values_are_counted_one_by_one_and_others_are_bounded) {
    histogram all;
    for (int i = 1; i <= 2'000; ++i) all.record(std::chrono::nanoseconds{i});
    EXPECT_EQ(all.value_at(0), 1ns);
    EXPECT_EQ(all.value_at(50), 1'000ns);
    EXPECT_EQ(all.value_at(99.95), 1'999ns);
    EXPECT_EQ(all.value_at(100), 2'000ns);
    EXPECT_DOUBLE_EQ(all.mean_ns(), 1'000.5);
    EXPECT_NEAR(all.deviation_ns(), 577.35, 0.01);
    all.record(-5ns);
    all.record(2h);
    EXPECT_EQ(all.count(), 2'002U);
    EXPECT_EQ(all.min(), 0ns);
    EXPECT_EQ(all.max(), histogram::longest);
    EXPECT_EQ(all.value_at(100), histogram::longest);
}

/// The lines of a report that hold numbers: value and percentile.
std::vector<std::pair<double, double>> percentile_lines(const std::string& text) {
    std::vector<std::pair<double, double>> out;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        double value = 0;
        double percentile = 0;
        if (fields >> value >> percentile) out.emplace_back(value, percentile);
    }
    return out;
}

TEST(histogram, the_text_has_the_format_of_hdr_histogram) {
    histogram all;
    for (int i = 1; i <= 1'000; ++i) all.record(std::chrono::microseconds{i});
    const std::string text = all.percentiles_text();
    EXPECT_TRUE(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n")) << text;
    EXPECT_NE(text.find("#[Mean    =      500.5"), std::string::npos) << text;
    EXPECT_NE(text.find("#[Max     =     1000.000, Total count    =         1000]"), std::string::npos) << text;
    EXPECT_NE(text.find("#[Buckets ="), std::string::npos);
    EXPECT_NE(text.find("    1000.000 1.000000000000       1000\n#["), std::string::npos)
        << "the last without a quotient";
    const auto lines = percentile_lines(text);
    ASSERT_GT(lines.size(), 20U);
    EXPECT_DOUBLE_EQ(lines.front().second, 0);
    EXPECT_DOUBLE_EQ(lines.back().second, 1);
    for (std::size_t i = 1; i < lines.size(); ++i) {
        EXPECT_GE(lines[i].first, lines[i - 1].first);
        EXPECT_GT(lines[i].second, lines[i - 1].second);
        EXPECT_GE(lines[i].first, lines[i].second * 1'000 * 0.998);
    }
}

TEST(duration, a_duration_of_a_run_is_above_zero_and_at_most_a_day) {
    EXPECT_EQ(parse_duration("1ns").value(), 1ns);
    EXPECT_EQ(parse_duration("1.5s").value(), 1'500ms);
    EXPECT_EQ(parse_duration("24h").value(), 24h);
    EXPECT_EQ(check_duration("10s"), "");
    for (const char* text : {"", "10", "-1s", "0s", "25h"}) {
        EXPECT_FALSE(parse_duration(text)) << "'" << text << "'";
        EXPECT_NE(check_duration(text).find("is not a valid duration: expected "), std::string::npos) << text;
    }
}

TEST(sizes, sizes_are_a_list_without_gaps) {
    EXPECT_EQ(parse_sizes("64,4KiB,1M").value(), (std::vector<std::size_t>{64, 4096, 1 << 20}));
    EXPECT_EQ(parse_sizes("7").value(), (std::vector<std::size_t>{7}));
    for (const char* text : {"", ",", "64,", ",64", "64,,64", "64;4K"}) {
        EXPECT_FALSE(parse_sizes(text)) << "'" << text << "'";
        EXPECT_NE(check_sizes(text).find("is not a valid size: expected "), std::string::npos) << text;
    }
}

TEST(size, a_size_is_printed_with_a_unit) {
    EXPECT_EQ(size_text(64), "64 B");
    EXPECT_EQ(size_text(4096), "4 KiB");
    EXPECT_EQ(size_text(1536), "1.5 KiB");
    EXPECT_EQ(size_text(std::size_t{1} << 20), "1 MiB");
    EXPECT_EQ(size_text(std::size_t{3} << 40), "3072 GiB");
}

TEST(table, a_table_aligns_its_columns) {
    table sheet{{{"scheme", table::align::left}, {"us"}}};
    sheet.add_row({"tcp", "16.0"});
    sheet.add_row({"zmq", "115.2", "one too many"});
    sheet.add_row({"local"});
    EXPECT_EQ(sheet.text(),
              "scheme     us\n"
              "------  -----\n"
              "tcp      16.0\n"
              "zmq     115.2\n"
              "local\n");
}

TEST(child_process, a_child_is_read_line_by_line) {
    auto child = child_process::start({"/bin/sh", "-c", "echo one; echo serving two; exit 3"});
    ASSERT_TRUE(child.ok()) << child.error().message;
    EXPECT_EQ(child->wait_for("serving ", 10s), "two");
    EXPECT_EQ(child->read_line(10s), std::nullopt);
    EXPECT_EQ(child->wait(10s), 3);
}

TEST(child_process, a_wait_for_a_silent_child_ends_in_time) {
    auto child = child_process::start({"/bin/sh", "-c", "exec sleep 60"});
    ASSERT_TRUE(child.ok()) << child.error().message;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(child->read_line(50ms), std::nullopt);
    EXPECT_EQ(child->wait(50ms), std::nullopt);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
    EXPECT_EQ(child->stop(10s), 128 + 15);
}

TEST(child_process, a_child_that_cannot_be_started_ends_at_once) {
    auto child = child_process::start({"/nonexistent/program"});
    ASSERT_TRUE(child.ok()) << child.error().message;
    EXPECT_EQ(child->wait(10s), 127);
}

TEST(cpu_time, cpu_time_grows_with_work) {
    const auto before = cpu_time();
    volatile unsigned sum = 0;
    while (cpu_time() - before < 20ms) sum = sum + 1;
    const auto through_the_id = cpu_time_of(getpid());
    ASSERT_TRUE(through_the_id);
    EXPECT_GE(*through_the_id + 10ms, cpu_time() - 10ms);
    EXPECT_GE(*through_the_id, 20ms);
}

TEST(cpu_time, cpu_time_of_threads_is_found_by_their_name) {
    std::atomic<bool> stop{false};
    const auto work = [&stop](const char* name) {
        (void)::pthread_setname_np(::pthread_self(), name);
        while (!stop) (void)time_now();
    };
    std::jthread device(work, "odd) name 1");
    std::jthread other(work, "another");
    const auto of_device = [] {
        const cpu_times seen = time_of_threads("odd) name");
        return seen.user + seen.kernel;
    };
    const auto all_before = cpu_time();
    while (of_device() < 50ms && cpu_time() - all_before < 5s) std::this_thread::sleep_for(5ms);
    const auto seen = of_device();
    const auto all = cpu_time() - all_before;
    stop = true;
    EXPECT_GE(seen, 50ms);
    EXPECT_LT(seen, all) << "the other thread has worked too";
    EXPECT_EQ(time_of_threads("nobody").user, 0ns);
}

}  // namespace
}  // namespace accel::report
