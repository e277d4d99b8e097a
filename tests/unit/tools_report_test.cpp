// SPDX-License-Identifier: Apache-2.0
#include "report/child_process.hpp"
#include "report/cpu_time.hpp"
#include "report/percentiles.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::report {
namespace {

using namespace std::chrono_literals;

std::vector<std::chrono::nanoseconds> one_to(int last) {
    std::vector<std::chrono::nanoseconds> values;
    for (int i = 1; i <= last; ++i) values.emplace_back(i);
    return values;
}

TEST(percentile, takes_the_nearest_rank) {
    const auto hundred = one_to(100);
    EXPECT_EQ(percentile(hundred, 0), 1ns);
    EXPECT_EQ(percentile(hundred, 50), 50ns);
    EXPECT_EQ(percentile(hundred, 99), 99ns);
    EXPECT_EQ(percentile(hundred, 99.9), 100ns);
    EXPECT_EQ(percentile(hundred, 100), 100ns);
}

TEST(percentile, of_one_and_of_none) {
    EXPECT_EQ(percentile(one_to(1), 1), 1ns);
    EXPECT_EQ(percentile(one_to(1), 99), 1ns);
    EXPECT_EQ(percentile({}, 50), 0ns);
}

TEST(summary, does_not_ask_for_order) {
    const latency_summary seen = summarise({30ns, 10ns, 20ns});
    EXPECT_EQ(seen.p50, 20ns);
    EXPECT_EQ(seen.max, 30ns);
}

TEST(median, is_the_middle_or_the_mean_of_both) {
    EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
    EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
    EXPECT_DOUBLE_EQ(median({}), 0);
}

TEST(size, is_read_with_its_suffix) {
    EXPECT_EQ(parse_size("0"), 0U);
    EXPECT_EQ(parse_size("4096"), 4096U);
    EXPECT_EQ(parse_size("64K"), 65'536U);
    EXPECT_EQ(parse_size("1M"), 1U << 20);
    EXPECT_EQ(parse_size("1G"), 1U << 30);
}

TEST(size, is_refused_where_it_is_anything_else) {
    for (const char* text :
         {"", "K", "-1", "+1", " 1", "1 ", "1k", "1KB", "0x10", "1.5M", "18446744073709551616", "17179869184G"}) {
        EXPECT_FALSE(parse_size(text)) << "'" << text << "'";
    }
}

TEST(size, takes_the_largest_that_fits) {
    EXPECT_EQ(parse_size("17179869183G"), std::size_t{17'179'869'183} << 30);
    EXPECT_EQ(parse_size("18446744073709551615"), std::numeric_limits<std::size_t>::max());
}

TEST(sizes, are_a_list_without_gaps) {
    EXPECT_EQ(parse_sizes("64,4K,1M"), (std::vector<std::size_t>{64, 4096, 1 << 20}));
    EXPECT_EQ(parse_sizes("7"), (std::vector<std::size_t>{7}));
    for (const char* text : {"", ",", "64,", ",64", "64,,64", "64;4K"}) {
        EXPECT_FALSE(parse_sizes(text)) << "'" << text << "'";
    }
}

TEST(size, is_written_for_people) {
    EXPECT_EQ(size_text(64), "64 B");
    EXPECT_EQ(size_text(4096), "4 KiB");
    EXPECT_EQ(size_text(1536), "1.5 KiB");
    EXPECT_EQ(size_text(std::size_t{1} << 20), "1 MiB");
    EXPECT_EQ(size_text(std::size_t{3} << 40), "3072 GiB");
}

TEST(table, aligns_its_columns) {
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

TEST(child_process, is_read_line_by_line) {
    auto child = child_process::start({"/bin/sh", "-c", "echo one; echo serving two; exit 3"});
    ASSERT_TRUE(child.ok()) << child.error().message;
    EXPECT_EQ(child->wait_for("serving ", 10s), "two");
    EXPECT_EQ(child->read_line(10s), std::nullopt);
    EXPECT_EQ(child->wait(10s), 3);
}

TEST(child_process, that_is_silent_is_not_waited_for_longer_than_asked) {
    auto child = child_process::start({"/bin/sh", "-c", "exec sleep 60"});
    ASSERT_TRUE(child.ok()) << child.error().message;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(child->read_line(50ms), std::nullopt);
    EXPECT_EQ(child->wait(50ms), std::nullopt);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
    EXPECT_EQ(child->stop(10s), 128 + 15);
}

TEST(child_process, that_cannot_be_started_ends_at_once) {
    auto child = child_process::start({"/nonexistent/program"});
    ASSERT_TRUE(child.ok()) << child.error().message;
    EXPECT_EQ(child->wait(10s), 127);
}

TEST(cpu_time, grows_with_work) {
    const auto before = cpu_time();
    volatile unsigned sum = 0;
    while (cpu_time() - before < 20ms) sum = sum + 1;
    const auto through_the_id = cpu_time_of(getpid());
    ASSERT_TRUE(through_the_id);
    EXPECT_GE(*through_the_id + 10ms, cpu_time() - 10ms);
    EXPECT_GE(*through_the_id, 20ms);
}

}  // namespace
}  // namespace accel::report
