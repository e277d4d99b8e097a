// SPDX-License-Identifier: Apache-2.0
// Counting, sums of what has ended, and the text for Prometheus.
#include "core/metrics/client_metrics.hpp"
#include "core/metrics/metrics_registry.hpp"
#include "core/metrics/server_metrics.hpp"

#include <accel_transport/accel_transport.hpp>

#include <limits>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(duration_histogram, buckets_are_powers_of_two) {
    EXPECT_EQ(duration_histogram::bucket_of(0ns), 0U);
    EXPECT_EQ(duration_histogram::bucket_of(1ns), 0U);
    for (std::size_t i = 1; i < 63; ++i) {
        const nanoseconds power{std::int64_t{1} << i};
        EXPECT_EQ(duration_histogram::bucket_of(power - 1ns), i - 1);
        EXPECT_EQ(duration_histogram::bucket_of(power), i);
        EXPECT_EQ(duration_histogram::bucket_of(power + 1ns), i);
    }
    EXPECT_EQ(duration_histogram::bucket_of(nanoseconds::max()), 62U);
    EXPECT_EQ(duration_histogram::bucket_of(-1ns), 63U) << "of clocks that run backwards: in no other's place";
}

TEST(duration_histogram, a_histogram_sums_and_counts_durations) {
    duration_histogram counted;
    for (const nanoseconds each : {0ns, 1ns, 300ns, 511ns, 512ns}) counted.add(each);
    histogram_sums read;
    read.add(counted);
    read.add(counted);
    EXPECT_EQ(read.sum_ns, 2 * 1324U);
    EXPECT_EQ(read.count(), 10U);
    EXPECT_EQ(read.buckets[0], 4U);
    EXPECT_EQ(read.buckets[8], 4U);
    EXPECT_EQ(read.buckets[9], 2U);
}

TEST(counter, a_counter_can_be_read_while_another_thread_counts) {
    counter shared;
    std::uint64_t last = 0;
    std::thread reader([&] {
        while (last < 200'000) {
            const std::uint64_t now = shared.read();
            ASSERT_GE(now, last);
            last = now;
        }
    });
    for (int i = 0; i < 100'000; ++i) {
        shared.add();
        shared.add(1);
    }
    reader.join();
    EXPECT_EQ(shared.read(), 200'000U);
    shared.add(std::uint64_t{1} << 40);
    EXPECT_EQ(shared.read(), (std::uint64_t{1} << 40) + 200'000) << "more than an instruction takes as a constant";
}

completion ended(status how, nanoseconds total, std::span<const std::byte> response = {}) {
    completion made;
    made.status = how;
    made.timeline.total = total;
    made.response = response;
    return made;
}

TEST(client_metrics, a_channel_that_ends_leaves_its_counters_and_no_gauges) {
    metrics_registry registry;
    counter submitted;
    const counter none;
    const std::array<std::byte, 7> response{};
    {
        client_metrics counted(registry, "tcp", submitted, none);
        submitted.add(4);
        counted.count(ended(status::ok, 1us, response), {10});
        counted.count(ended(status::ok, 1us, response), {10, target_of("model").number});
        counted.count(ended(status::timed_out, 1us), {10});
        counted.count_stale();
        counted.count_reconnect();
        EXPECT_EQ(registry.snapshot().sum("accel_calls_in_flight"), 1);
        EXPECT_EQ(registry.snapshot().sum("accel_channels"), 1);
    }
    registry.name_target("model");
    const metrics_snapshot seen = registry.snapshot();
    EXPECT_EQ(seen.sum("accel_calls_in_flight"), 0);
    EXPECT_EQ(seen.sum("accel_channels"), 0);
    EXPECT_EQ(seen.sum("accel_calls_total"), 3);
    EXPECT_EQ(seen.sum("accel_calls_total", {{"status", "timed_out"}}), 1);
    EXPECT_EQ(seen.sum("accel_calls_total", {{"target", "model"}}), 1);
    EXPECT_EQ(seen.sum("accel_request_bytes_total"), 30);
    EXPECT_EQ(seen.sum("accel_response_bytes_total", {{"scheme", "tcp"}, {"role", "client"}}), 14);
    EXPECT_EQ(seen.sum("accel_stale_responses_total"), 1);
    EXPECT_EQ(seen.sum("accel_reconnects_total"), 1);
}

TEST(client_metrics, channels_of_a_scheme_are_summed) {
    metrics_registry registry;
    counter submitted;
    counter waiting;
    waiting.add(3);
    const counter none;
    client_metrics first(registry, "tcp", submitted, waiting);
    client_metrics second(registry, "tcp", submitted, none);
    client_metrics other(registry, "shm", submitted, none);
    for (client_metrics* each : {&first, &second, &other}) each->count(ended(status::ok, 1us), {10});
    const metrics_snapshot seen = registry.snapshot();
    EXPECT_EQ(seen.sum("accel_calls_total", {{"scheme", "tcp"}}), 2);
    EXPECT_EQ(seen.sum("accel_calls_total", {{"scheme", "shm"}}), 1);
    EXPECT_EQ(seen.sum("accel_channels", {{"scheme", "tcp"}}), 2);
    EXPECT_EQ(seen.sum("accel_calls_in_flight"), 0) << "never below zero";
    EXPECT_EQ(seen.sum("accel_quarantined_slots", {{"scheme", "tcp"}}), 3);
}

TEST(client_metrics, targets_without_a_known_name_have_their_number) {
    metrics_registry registry;
    counter submitted;
    const counter none;
    client_metrics counted(registry, "tcp", submitted, none);
    counted.count(ended(status::ok, 1us), {10, 0x1a2b});
    EXPECT_EQ(registry.snapshot().sum("accel_calls_total", {{"target", "#00001a2b"}}), 1);
}

TEST(server_metrics, each_scheme_and_target_has_its_series) {
    server_metrics counted({target_of("a").number, target_of("b").number});
    server_series* const tcp = counted.of_scheme("tcp");
    server_series* const shm = counted.of_scheme("shm");
    EXPECT_EQ(counted.of_scheme("tcp"), tcp);
    EXPECT_NE(shm, tcp);
    tcp[0].of(counted_stage::server).add(1us);
    tcp[0].of(counted_stage::queue).add(1us);
    tcp[2].of(counted_stage::server).add(1us);
    tcp[2].of(counted_stage::queue).add(1us);
    tcp[counted.unknown()].failures[static_cast<std::size_t>(status::not_found)].add();
    metrics_sums sums;
    counted.add_to(sums);
    EXPECT_EQ(sums.calls.size(), 3U);
    EXPECT_EQ((sums.calls[{true, "tcp", no_target}].ended[0]), 1U);
    EXPECT_EQ((sums.calls[{true, "tcp", target_of("b").number}].ended[0]), 1U);
    EXPECT_EQ((sums.calls[{true, "tcp", unknown_target}].all_ended()), 1U);
}

TEST(prometheus_text, the_text_has_the_format_that_prometheus_reads) {
    metrics_snapshot seen;
    seen.families.push_back({"accel_a_total", "Counts\nwith a \\ and a \".", metric_kind::counter, {}});
    seen.families.back().series.push_back({{}, 3, 0, {}});
    seen.families.back().series.push_back({{{"one", "x"}, {"two", "a\"b\\c\nd"}}, 1e15, 0, {}});
    seen.families.push_back({"accel_b_seconds", "Times.", metric_kind::histogram, {}});
    seen.families.back().series.push_back({{{"stage", "total"}}, 1.5, 5, {{0.25, 1}, {0.5, 3}}});
    seen.families.push_back({"accel_c", "Now.", metric_kind::gauge, {}});
    EXPECT_EQ(prometheus_text(seen),
              "# HELP accel_a_total Counts\\nwith a \\\\ and a \".\n"
              "# TYPE accel_a_total counter\n"
              "accel_a_total 3\n"
              "accel_a_total{one=\"x\",two=\"a\\\"b\\\\c\\nd\"} 1000000000000000\n"
              "# HELP accel_b_seconds Times.\n"
              "# TYPE accel_b_seconds histogram\n"
              "accel_b_seconds_bucket{stage=\"total\",le=\"0.25\"} 1\n"
              "accel_b_seconds_bucket{stage=\"total\",le=\"0.5\"} 3\n"
              "accel_b_seconds_bucket{stage=\"total\",le=\"+Inf\"} 5\n"
              "accel_b_seconds_sum{stage=\"total\"} 1.5\n"
              "accel_b_seconds_count{stage=\"total\"} 5\n"
              "# HELP accel_c Now.\n"
              "# TYPE accel_c gauge\n");
}

TEST(prometheus_text, infinite_and_undefined_numbers_have_names) {
    metrics_snapshot seen;
    seen.families.push_back({"a", "b", metric_kind::gauge, {}});
    for (const double each : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(), 0.1})
        seen.families.back().series.push_back({{}, each, 0, {}});
    EXPECT_EQ(prometheus_text(seen), "# HELP a b\n# TYPE a gauge\na +Inf\na -Inf\na NaN\na 0.1\n");
}

/// Prometheus drops a scrape in which a histogram's buckets fall.
TEST(metrics_snapshot, buckets_rise_and_units_are_in_the_names) {
    metrics_registry registry;
    counter submitted;
    const counter none;
    client_metrics counted(registry, "tcp", submitted, none);
    for (int i = 0; i < 62; ++i) counted.count(ended(status::ok, nanoseconds{std::int64_t{1} << i}), {1});
    for (const metric_family& family : registry.snapshot().families) {
        EXPECT_TRUE(family.name.starts_with("accel_")) << family.name;
        EXPECT_TRUE(family.help.ends_with(".")) << family.help;
        EXPECT_EQ(family.name.ends_with("_total"), family.kind == metric_kind::counter) << family.name;
        if (family.kind != metric_kind::histogram) continue;
        EXPECT_TRUE(family.name.ends_with("_seconds")) << family.name;
        for (const metric& each : family.series) {
            double upper = 0;
            std::uint64_t below = 0;
            for (const metric::bucket& bucket : each.buckets) {
                EXPECT_GT(bucket.upper, upper);
                EXPECT_GE(bucket.count, below);
                upper = bucket.upper;
                below = bucket.count;
            }
            EXPECT_GE(each.count, below);
            EXPECT_EQ(each.count, 62U);
        }
    }
    EXPECT_EQ(registry.snapshot().sum("accel_stage_seconds", {{"stage", "total"}}), 62);
}

}  // namespace
}  // namespace accel::core
