// SPDX-License-Identifier: Apache-2.0
#include "perf/command.hpp"
#include "perf/commands.hpp"
#include "perf/histogram_file.hpp"
#include "perf/loop_uris.hpp"
#include "perf/pattern.hpp"
#include "perf/progress.hpp"
#include "perf/service.hpp"
#include "report/timetable.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::perf {
namespace {

using namespace std::chrono_literals;

TEST(command, a_command_survives_its_trip_in_a_trace_id) {
    const command wanted{0xffff'fff0, 0xab'cdef, true, false};
    const command seen = unpack(pack(wanted));
    EXPECT_EQ(seen.response_bytes, wanted.response_bytes);
    EXPECT_EQ(seen.seed, wanted.seed);
    EXPECT_TRUE(seen.check);
    EXPECT_FALSE(seen.report_cpu);
    EXPECT_TRUE(unpack(pack({.report_cpu = true})).report_cpu);
    EXPECT_EQ(unpack(0).response_bytes, 0U);
}

TEST(pattern, a_pattern_is_recognised_at_every_length) {
    std::array<std::byte, 40> bytes{};
    for (std::size_t length = 0; length <= bytes.size(); ++length) {
        const auto part = std::span{bytes}.first(length);
        fill_pattern(part, 7);
        EXPECT_TRUE(holds_pattern(part, 7)) << length;
    }
}

TEST(pattern, a_pattern_differs_by_seed_place_and_single_bit) {
    std::array<std::byte, 40> bytes{};
    fill_pattern(bytes, 7);
    EXPECT_FALSE(holds_pattern(bytes, 8));
    EXPECT_FALSE(holds_pattern(bytes, response_seed(7)));
    EXPECT_FALSE(holds_pattern(std::span{bytes}.subspan(8), 7));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] ^= std::byte{1};
        EXPECT_FALSE(holds_pattern(bytes, 7)) << i;
        bytes[i] ^= std::byte{1};
    }
}

TEST(plan, a_plan_limits_the_bytes_sent_by_default) {
    settings chosen;
    chosen.sizes = {0, 64, std::size_t{64} << 20};
    const std::vector<load> loads = plan(chosen);
    ASSERT_EQ(loads.size(), 3U);
    EXPECT_EQ(loads[0].count, 10'000U);
    EXPECT_EQ(loads[1].count, 10'000U);
    EXPECT_EQ(loads[1].response_bytes, 64U);
    EXPECT_EQ(loads[2].count, 100U);
}

TEST(plan, a_plan_takes_the_given_options) {
    settings chosen;
    chosen.response_bytes = 0;
    chosen.count = 5;
    chosen.warm_up = 0;
    chosen.depth = 3;
    const load only = plan(chosen).front();
    EXPECT_EQ(only.response_bytes, 0U);
    EXPECT_EQ(only.count, 5U);
    EXPECT_EQ(only.warm_up, 0U);
    EXPECT_EQ(only.depth, 3U);
}

TEST(plan, an_open_loop_has_slots_for_a_stall_but_not_for_gigabytes) {
    settings chosen;
    chosen.rate = 1'000;
    chosen.clients = 3;
    chosen.duration = std::chrono::seconds{2};
    chosen.sizes = {64, std::size_t{64} << 20, std::size_t{1} << 30};
    const std::vector<load> loads = plan(chosen);
    EXPECT_EQ(loads[0].depth, 64U);
    EXPECT_EQ(loads[1].depth, 4U);
    EXPECT_EQ(loads[2].depth, 1U);
    EXPECT_EQ(loads[0].clients, 3U);
    EXPECT_EQ(loads[0].count, ~std::uint64_t{0}) << "the duration ends it";
    EXPECT_EQ(loads[0].warm_up, 1'000U);
    chosen.depth = 7;
    chosen.count = 50;
    EXPECT_EQ(plan(chosen).front().depth, 7U);
    EXPECT_EQ(plan(chosen).front().count, 50U);
}

TEST(plan, a_mix_is_one_measurement) {
    settings chosen;
    chosen.mix = size_mix::parse("64:70,4KiB:20,1M:10");
    const std::vector<load> loads = plan(chosen);
    ASSERT_EQ(loads.size(), 1U);
    EXPECT_EQ(loads.front().request_bytes, 1U << 20);
    EXPECT_EQ(loads.front().mix.parts().size(), 3U);
    EXPECT_TRUE(loads.front().echoes_size);
}

TEST(size_mix, a_mix_is_read_with_its_weights) {
    const auto mix = size_mix::parse("64:70,4KiB:30");
    ASSERT_TRUE(mix);
    EXPECT_EQ(mix->parts(), (std::vector<size_mix::part>{{64, 70}, {4096, 30}}));
    EXPECT_EQ(mix->longest(), 4096U);
    EXPECT_DOUBLE_EQ(mix->mean_bytes(), 64 * 0.7 + 4096 * 0.3);
    for (const char* text : {"", "64", "64:", ":1", "64:0", "64:-1", "64:1,", "64:1.5", "64:1000001", "x:1", "64:1:1"})
        EXPECT_FALSE(size_mix::parse(text)) << "'" << text << "'";
    std::string many = "1:1";
    for (int i = 0; i < 64; ++i) many += ",1:1";
    EXPECT_FALSE(size_mix::parse(many));
}

TEST(size_mix, a_mix_chooses_by_weight) {
    const auto mix = size_mix::parse("1:70,2:20,3:10");
    std::mt19937_64 random(1);
    std::map<std::size_t, int> seen;
    for (int i = 0; i < 10'000; ++i) ++seen[mix->choose(random)];
    EXPECT_NEAR(seen[1], 7'000, 200);
    EXPECT_NEAR(seen[2], 2'000, 200);
    EXPECT_NEAR(seen[3], 1'000, 200);
}

load open_loop(double rate, std::uint32_t clients, arrivals how) {
    load out;
    out.rate = rate;
    out.clients = clients;
    out.arriving = how;
    return out;
}

TEST(timetable, constant_arrivals_have_equal_gaps_and_clients_take_turns) {
    const report::arrival_plan what{1'000, 2, arrivals::constant};
    report::timetable first(what, 0, 5ms);
    report::timetable second(what, 1, 5ms);
    EXPECT_EQ(first.next(), 5ms);
    EXPECT_EQ(second.next(), 6ms);
    first.advance();
    second.advance();
    EXPECT_EQ(first.next(), 7ms);
    EXPECT_EQ(second.next(), 8ms);
}

TEST(timetable, poisson_arrivals_keep_the_rate_and_scatter) {
    report::timetable of({1'000, 1, arrivals::poisson}, 0, 0ns);
    std::chrono::nanoseconds before = of.next();
    double squares = 0;
    for (int i = 0; i < 100'000; ++i) {
        of.advance();
        const double gap_ms = std::chrono::duration<double, std::milli>(of.next() - before).count();
        ASSERT_GE(gap_ms, 0);
        squares += (gap_ms - 1) * (gap_ms - 1);
        before = of.next();
    }
    EXPECT_NEAR(std::chrono::duration<double>(before).count(), 100, 2);
    EXPECT_NEAR(squares / 100'000, 1, 0.05) << "as long as the mean";
}

TEST(timetable, timetables_differ_between_clients_and_seeds) {
    report::arrival_plan what{1'000, 2, arrivals::poisson};
    const auto first = report::timetable(what, 0, 0ns).next();
    EXPECT_NE(first, report::timetable(what, 1, 0ns).next());
    EXPECT_EQ(first, report::timetable(what, 0, 0ns).next());
    what.seed = 1;
    EXPECT_NE(first, report::timetable(what, 0, 0ns).next()) << "of another seed";
}

outcome seen_over(const std::string& scheme, std::size_t bytes) {
    outcome out;
    out.what.request_bytes = bytes;
    out.seen.scheme = scheme;
    return out;
}

TEST(histogram_file, each_measurement_has_a_file_name_of_its_own) {
    std::vector<outcome> all{seen_over("tcp", 64)};
    EXPECT_EQ(histogram_path("/tmp/out.hgrm", all, 0), "/tmp/out.hgrm");
    all.push_back(seen_over("zmq", 4096));
    EXPECT_EQ(histogram_path("/tmp/out.hgrm", all, 0), "/tmp/out-1-tcp-64.hgrm");
    EXPECT_EQ(histogram_path("out", all, 1), "out-2-zmq-4096");
    all.back().what.mix = *size_mix::parse("1:1");
    EXPECT_EQ(histogram_path("a.b/out.hgrm", all, 1), "a.b/out-2-zmq-mix.hgrm");
}

TEST(progress, the_progress_line_counts_calls_or_seconds) {
    load what;
    what.count = 100;
    EXPECT_EQ(progress_text("tcp://a:1?key_file=secret", what, 50, 2s), "tcp://a:1: 50 of 100 calls, 25/s");
    what.duration = 10s;
    EXPECT_EQ(progress_text("tcp://a:1", what, 50, 2s), "tcp://a:1: 2 of 10 s, 50 calls, 25/s");
}

/// A server of this process that stands still once, at its thousandth request.
class stalling : public ::testing::Test {
  protected:
    result<measurement> run(const load& what) {
        std::atomic<int> served{0};
        auto serve = [&](exchange one) {
            if (++served == 1'000) std::this_thread::sleep_for(200ms);
            serve_request(std::move(one));
        };
        auto there = server::listen(ctx, {"local://stalling"}, serve).value();
        channel_options options;
        options.slots = what.depth;
        options.poll = poll_mode::block;
        options.request_bytes = options.response_bytes = 4096;
        return run_load(ctx, "local://stalling", options, what);
    }
    context ctx = context::open({.log = log_level::off}).value();
};

TEST_F(stalling, an_open_loop_counts_the_calls_that_were_due_meanwhile) {
    load what = open_loop(2'000, 2, arrivals::constant);
    what.count = 2'000;
    what.depth = 8;  // fewer than come during the stall
    what.check = true;
    const auto seen = run(what);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().calls, 2'000U);
    EXPECT_EQ(seen.value().latency.count(), 2'000U);
    // 400 calls were due in those 200 ms, half of them more than 100 ms before its end.
    EXPECT_GT(seen.value().latency.value_at(92), 50ms);
    EXPECT_GT(seen.value().delay.max(), 50ms) << "some could not be sent in time";
    EXPECT_GT(seen.value().wall, 900ms) << "2,000 calls at 2,000 a second";
}

TEST_F(stalling, a_closed_loop_counts_a_stall_once) {
    load what;
    what.count = 2'000;
    what.clients = 2;
    const auto seen = run(what);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().calls, 2'000U);
    EXPECT_GT(seen.value().latency.max(), 150ms);
    EXPECT_LT(seen.value().latency.value_at(92), 50ms);
}

TEST_F(stalling, a_duration_ends_a_loop_and_unsent_calls_are_counted) {
    load what = open_loop(50'000, 1, arrivals::poisson);
    what.count = ~std::uint64_t{0};
    what.warm_up = 998;  // then a report, and the first call stalls
    what.depth = 4;
    what.duration = 200ms;
    const auto seen = run(what);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_GT(seen.value().unsent, 1'000U);
    EXPECT_LT(seen.value().wall, 5s);
    EXPECT_EQ(seen.value().latency.count(), seen.value().calls);
}

TEST_F(stalling, a_mix_sends_all_sizes) {
    load what;
    what.mix = *size_mix::parse("100:1,1000:1");
    what.request_bytes = what.response_bytes = 1'000;
    what.count = 500;
    what.check = true;
    const auto seen = run(what);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_GT(seen.value().request_bytes, 500U * 400);
    EXPECT_LT(seen.value().request_bytes, 500U * 700);
    EXPECT_EQ(seen.value().request_bytes, seen.value().response_bytes);
}

TEST_F(stalling, requests_beyond_the_grant_are_refused_before_the_measurement) {
    load what;
    what.clients = 4;
    what.request_bytes = 8192;  // more than the channel takes
    EXPECT_EQ(run(what).code(), status::message_too_large);
}

TEST(loop_uri, a_scheme_alone_means_insecure_on_loopback) {
    const auto ends = split_for_loop("tcp");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "tcp://127.0.0.1:0?insecure=true");
    EXPECT_EQ(ends.value().client_query, "?insecure=true");
    EXPECT_TRUE(ends.value().made_insecure);
}

TEST(loop_uri, the_scheme_local_needs_no_keys) {
    const auto ends = split_for_loop("local");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "local://perf");
    EXPECT_EQ(ends.value().client_query, "");
    EXPECT_FALSE(ends.value().made_insecure);
}

TEST(loop_uri, the_scheme_shm_gets_a_name_of_its_own_and_no_keys) {
    const auto ends = split_for_loop("shm");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_TRUE(ends.value().server.starts_with("shm://perf-")) << ends.value().server;
    EXPECT_EQ(ends.value().client_query, "");
    EXPECT_FALSE(ends.value().made_insecure);
}

TEST(loop_uri, each_end_gets_its_own_options) {
    const auto ends =
        split_for_loop("zmq://127.0.0.1:0?key_file=k&authorized_keys=a&server_key=s&slots=4&workers=2&poll=busy");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "zmq://127.0.0.1:0?key_file=k&authorized_keys=a&workers=2&poll=busy");
    EXPECT_EQ(ends.value().client_query, "?key_file=k&server_key=s&slots=4&poll=busy");
    EXPECT_FALSE(ends.value().made_insecure);
}

TEST(loop_uri, neither_end_gets_an_option_of_the_other) {
    const auto ends = split_for_loop(
        "tcp://127.0.0.1:0?insecure=true&reconnect=true&priority=high&max_client_sessions=3&max_connections=9");
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    EXPECT_EQ(ends.value().server, "tcp://127.0.0.1:0?insecure=true&max_client_sessions=3&max_connections=9");
    EXPECT_EQ(ends.value().client_query, "?insecure=true&reconnect=true&priority=high");
}

TEST(loop_uri, a_uri_without_keys_is_refused_off_loopback) {
    EXPECT_EQ(split_for_loop("tcp://192.0.2.1:5555").code(), status::unauthorized);
    EXPECT_EQ(split_for_loop("tcp://0.0.0.0:0?poll=busy").code(), status::unauthorized);
    EXPECT_TRUE(split_for_loop("tcp://192.0.2.1:5555?insecure=true").ok());
}

}  // namespace
}  // namespace accel::perf
