// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_gpu.hpp"
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
#include <cstring>
#include <map>
#include <memory>
#include <optional>
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

TEST(pattern, a_pattern_is_recognised_at_every_length_and_differs_by_seed_place_and_single_bit) {
    std::array<std::byte, 40> bytes{};
    for (std::size_t length = 0; length <= bytes.size(); ++length) {
        const auto part = std::span{bytes}.first(length);
        fill_pattern(part, 7);
        EXPECT_TRUE(holds_pattern(part, 7)) << length;
        for (std::size_t i = 0; i < length; ++i) {
            part[i] ^= std::byte{1};
            EXPECT_FALSE(holds_pattern(part, 7)) << i << " of " << length;
            part[i] ^= std::byte{1};
        }
    }
    EXPECT_FALSE(holds_pattern(bytes, 8));
    EXPECT_FALSE(holds_pattern(bytes, response_seed(7)));
    EXPECT_FALSE(holds_pattern(std::span{bytes}.subspan(8), 7));
}

TEST(plan, a_plan_limits_bytes_and_slots_by_default_and_takes_the_given_options) {
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    constexpr std::uint64_t endless = ~std::uint64_t{0};  // the duration ends it
    settings closed;
    settings open;
    open.rate = 1'000;
    open.clients = 3;
    open.duration = 2s;
    const auto with = [](settings chosen, auto change) {
        change(chosen);
        return chosen;
    };
    struct row {
        const char* what;
        settings chosen;
        std::size_t bytes;
        std::uint64_t count;
        std::optional<std::uint32_t> depth;
    };
    const row all[] = {
        {"nothing", closed, 0, 10'000, {}},
        {"short requests", closed, 64, 10'000, {}},
        {"long requests", closed, 64 * mebibyte, 100, {}},
        {"a count", with(closed, [](auto& s) { s.count = 5; }), 64, 5, {}},
        {"a depth", with(closed, [](auto& s) { s.depth = 3; }), 64, 10'000, 3},
        {"an open loop has slots for a stall", open, 64, endless, 64},
        {"but not for gigabytes", open, 64 * mebibyte, endless, 4},
        {"and one for a gigabyte", open, 1024 * mebibyte, endless, 1},
        {"an open loop with a depth", with(open, [](auto& s) { s.depth = 7; }), 64, endless, 7},
        {"an open loop with a count", with(open, [](auto& s) { s.count = 50; }), 64, 50, 64},
    };
    for (row each : all) {
        SCOPED_TRACE(each.what);
        each.chosen.sizes = {each.bytes, 1};
        const std::vector<load> loads = plan(each.chosen);
        ASSERT_EQ(loads.size(), 2U);
        EXPECT_EQ(loads[0].request_bytes, each.bytes);
        EXPECT_EQ(loads[0].response_bytes, each.bytes);
        EXPECT_EQ(loads[0].count, each.count);
        EXPECT_EQ(loads[0].clients, each.chosen.clients);
        if (each.depth) {
            EXPECT_EQ(loads[0].depth, *each.depth);
        }
    }
    EXPECT_EQ(plan(open).front().warm_up, 1'000U);
    EXPECT_EQ(plan(with(closed, [](auto& s) { s.warm_up = 0; })).front().warm_up, 0U);
    EXPECT_EQ(plan(with(closed, [](auto& s) { s.response_bytes = 0; })).front().response_bytes, 0U);
    const auto mix = plan(with(closed, [](auto& s) { s.mix = size_mix::parse("64:70,4KiB:20,1M:10"); }));
    ASSERT_EQ(mix.size(), 1U) << "a mix is one measurement";
    EXPECT_EQ(mix.front().request_bytes, mebibyte);
    EXPECT_EQ(mix.front().mix.parts().size(), 3U);
    EXPECT_TRUE(mix.front().echoes_size);
}

TEST(size_mix, a_mix_is_read_with_its_weights_and_chooses_by_them) {
    const auto mix = size_mix::parse("1:70,2:20,4KiB:10");
    ASSERT_TRUE(mix);
    EXPECT_EQ(mix->parts(), (std::vector<size_mix::part>{{1, 70}, {2, 20}, {4096, 10}}));
    EXPECT_EQ(mix->longest(), 4096U);
    EXPECT_DOUBLE_EQ(mix->mean_bytes(), 1 * 0.7 + 2 * 0.2 + 4096 * 0.1);
    std::mt19937_64 random(1);
    std::map<std::size_t, int> seen;
    for (int i = 0; i < 10'000; ++i) ++seen[mix->choose(random)];
    EXPECT_NEAR(seen[1], 7'000, 200);
    EXPECT_NEAR(seen[2], 2'000, 200);
    EXPECT_NEAR(seen[4096], 1'000, 200);
    for (const char* text : {"", "64", "64:", ":1", "64:0", "64:-1", "64:1,", "64:1.5", "64:1000001", "x:1", "64:1:1"})
        EXPECT_FALSE(size_mix::parse(text)) << "'" << text << "'";
    std::string many = "1:1";
    for (int i = 0; i < 63; ++i) many += ",1:1";
    EXPECT_TRUE(size_mix::parse(many)) << "64 sizes";
    EXPECT_FALSE(size_mix::parse(many + ",1:1"));
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

TEST(payloads_on_a_gpu, are_neither_read_nor_written_by_the_service) {
    context ctx = context::open({.log = log_level::off}).value();
    core::internals::state_of(ctx)->replace_devices(std::make_shared<tests::fake_accelerator>());
    server_options on_gpu;
    on_gpu.memory = memory_kind::cuda(0);
    auto there = server::listen(ctx, {"local://on-a-gpu"}, serve_request, on_gpu).value();
    load what;
    what.count = 10;
    channel_options options;
    options.request_bytes = options.response_bytes = 4096;
    const auto seen = run_load(ctx, "local://on-a-gpu", options, what);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().calls, 10U);
    EXPECT_FALSE(seen.value().server_cpu);
    what.check = true;
    EXPECT_EQ(run_load(ctx, "local://on-a-gpu", options, what).code(), status::unsupported);
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

TEST(loop_uri, each_end_gets_its_own_options_and_keys_are_needed_off_loopback) {
    struct row {
        const char* uri;
        status code;
        const char* server;  ///< or how it begins
        const char* client_query;
        bool made_insecure;
    };
    const row all[] = {
        {"tcp", status::ok, "tcp://127.0.0.1:0?insecure=true", "?insecure=true", true},
        {"local", status::ok, "local://perf", "", false},
        {"shm", status::ok, "shm://perf-", "", false},
        {"zmq://127.0.0.1:0?key_file=k&authorized_keys=a&server_key=s&slots=4&workers=2&poll=busy", status::ok,
         "zmq://127.0.0.1:0?key_file=k&authorized_keys=a&workers=2&poll=busy",
         "?key_file=k&server_key=s&slots=4&poll=busy", false},
        {"tcp://127.0.0.1:0?insecure=true&reconnect=true&priority=high&max_client_sessions=3&max_connections=9",
         status::ok, "tcp://127.0.0.1:0?insecure=true&max_client_sessions=3&max_connections=9",
         "?insecure=true&reconnect=true&priority=high", false},
        {"tcp://192.0.2.1:5555", status::unauthorized, "", "", false},
        {"tcp://0.0.0.0:0?poll=busy", status::unauthorized, "", "", false},
        {"tcp://192.0.2.1:5555?insecure=true", status::ok, "tcp://192.0.2.1:5555?insecure=true", "?insecure=true",
         false},
    };
    for (const row& each : all) {
        SCOPED_TRACE(each.uri);
        auto ends = split_for_loop(each.uri);
        ASSERT_EQ(ends.code(), each.code);
        if (!ends) continue;
        const std::string own_name =
            ends->server.starts_with("shm") ? ends->server.substr(std::strlen(each.server)) : "";
        EXPECT_EQ(ends->server, each.server + own_name);
        EXPECT_EQ(ends->client_query, each.client_query);
        EXPECT_EQ(ends->made_insecure, each.made_insecure);
    }
}

}  // namespace
}  // namespace accel::perf
