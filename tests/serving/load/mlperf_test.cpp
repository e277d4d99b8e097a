// SPDX-License-Identifier: Apache-2.0
// MLPerf's logs of examples/serving/load: what LoadGen writes, and what load writes without it.
#include "report/child_process.hpp"
#include "report/program.hpp"
#include "serving/load/issue_queue.hpp"
#include "serving/load/loadgen.hpp"
#include "serving/models/synthetic.hpp"

#include <accel_transport/server.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::examples::serving {
namespace {

using namespace std::chrono_literals;

const std::vector<std::string> any_place{"tcp://127.0.0.1:0?insecure=true"};

class load_mlperf : public ::testing::TestWithParam<bool> {
  protected:
    load_mlperf() {
        const service_table models{{{"mobilenet_v3", [this](exchange request) {
                                         tensor out = find_model("mobilenet_v3")->outputs.front();
                                         const std::size_t bytes = size_bytes(out);
                                         synthetic_answer(request.request(), request.response().first(bytes));
                                         if (++served_ == fails_) return (void)request.fail(status::overloaded);
                                         (void)request.describe(bytes, {&out, 1});
                                         (void)request.reply(bytes);
                                     }}}};
        server_.emplace(server::listen(ctx_, any_place, models).value());
        chosen_.uris = {server_->endpoints().front() + "?insecure=true"};
        chosen_.model = find_model("mobilenet_v3");
        chosen_.expect = expectation::synthetic;
        chosen_.clients = 2;
        chosen_.depth = 4;
        chosen_.warm_up = 1;
        chosen_.slo = 5s;
        chosen_.gpu = -1;
    }
    ~load_mlperf() override { std::filesystem::remove_all(folder_); }

    [[nodiscard]] bool by_loadgen() const { return GetParam(); }
    result<load_outcome> run(scenario wanted, std::uint64_t calls, double rate, std::chrono::nanoseconds least = {}) {
        chosen_.requests = calls / chosen_.clients;
        const mlperf_run made{folder_, wanted, calls, least, rate};
        if (by_loadgen()) return run_loadgen(ctx_, chosen_, made);
        chosen_.rate = rate;
        chosen_.least_time = least;
        auto out = run_load(ctx_, chosen_);
        EXPECT_TRUE(!out || write_mlperf_summary(made, chosen_, *out));
        return out;
    }
    [[nodiscard]] std::string logged(std::string_view name) const { return mlperf_value(folder_, name).value_or(""); }
    /// What stands before the colons, in order.
    [[nodiscard]] std::vector<std::string> names() const {
        std::ifstream file(folder_ + "/mlperf_log_summary.txt");
        std::vector<std::string> out;
        for (std::string line; std::getline(file, line);)
            if (line.find(':') != std::string::npos) out.push_back(line.substr(0, line.find(':')));
        return out;
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    std::atomic<int> served_{0};
    int fails_ = 0;  ///< the number of the request that fails; 0: none
    std::optional<server> server_;
    load_settings chosen_;
    std::string folder_ = std::filesystem::temp_directory_path() / ("load-mlperf-" + std::to_string(::getpid()));
};

INSTANTIATE_TEST_SUITE_P(generators, load_mlperf, ::testing::Values(false, true),
                         [](const auto& each) { return std::string{each.param ? "loadgen" : "own"}; });

#define NEEDS_GENERATOR() \
    if (by_loadgen() && !has_loadgen()) GTEST_SKIP() << "LoadGen is not in this build: scripts/loadgen.sh"

TEST_P(load_mlperf, a_server_run_that_keeps_its_latency_is_valid) {
    NEEDS_GENERATOR();
    auto seen = run(scenario::server, 500, 2'000);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen->all().answered, 500U);
    EXPECT_EQ(seen->all().wrong, 0U);
    EXPECT_EQ(logged("Scenario"), "Server");
    EXPECT_EQ(logged("Result is"), "VALID");
    EXPECT_EQ(logged("Early stopping satisfied"), "Yes");
    EXPECT_EQ(std::stod(logged("target_qps")), 2'000);
    EXPECT_GT(std::stod(logged("99.90 percentile latency (ns)")), std::stod(logged("Min latency (ns)")));
    EXPECT_GT(std::stod(logged("Min latency (ns)")), 1'000);
    EXPECT_NEAR(std::stod(logged("Scheduled samples per second")), 2'000, 400);
}

TEST_P(load_mlperf, a_run_lasts_for_its_minimum_duration) {
    NEEDS_GENERATOR();
    auto seen = run(scenario::server, 10, 500, 300ms);
    ASSERT_TRUE(seen);
    EXPECT_GE(seen->all().answered, 80U);
    EXPECT_GE(seen->wall, 250ms);
    EXPECT_EQ(logged("Min duration satisfied"), "Yes");
}

TEST_P(load_mlperf, offline_issues_all_calls_at_once) {
    NEEDS_GENERATOR();
    auto seen = run(scenario::offline, 200, 0);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen->all().answered, 200U);
    EXPECT_EQ(logged("Scenario"), "Offline");
    EXPECT_EQ(logged("Result is"), "VALID");
    EXPECT_EQ(logged("samples_per_query"), "200");
    EXPECT_GT(std::stod(logged("Samples per second")), 1);
}

TEST_P(load_mlperf, a_failed_call_is_counted_and_blocks_nothing) {
    NEEDS_GENERATOR();
    fails_ = 50;
    auto seen = run(scenario::server, 100, 2'000);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen->all().failed(), 1U);
    EXPECT_EQ(seen->all().answered, 99U);
}

TEST_P(load_mlperf, both_generators_write_the_same_lines) {
    NEEDS_GENERATOR();
    if (!has_loadgen()) GTEST_SKIP() << "LoadGen is not in this build: scripts/loadgen.sh";
    if (by_loadgen()) return;
    for (const scenario each : {scenario::server, scenario::offline}) {
        ASSERT_TRUE(run(each, 500, each == scenario::server ? 5'000 : 0));
        const auto own = names();
        ASSERT_TRUE(run_loadgen(ctx_, chosen_, {folder_, each, 500, {}, 5'000}));
        EXPECT_EQ(own, names());
    }
}

TEST_P(load_mlperf, the_peak_is_a_rate_that_keeps_the_latency) {
    NEEDS_GENERATOR();
    if (!by_loadgen()) return;  // load_peak.* are its tests
    // One call in 10 ms on each of two channels with one call in flight: 200 a second at most.
    server_.reset();
    const service_table slow{{{"mobilenet_v3", [](exchange request) {
                                   tensor out = find_model("mobilenet_v3")->outputs.front();
                                   const std::size_t bytes = size_bytes(out);
                                   synthetic_answer(request.request(), request.response().first(bytes));
                                   std::this_thread::sleep_for(10ms);
                                   (void)request.describe(bytes, {&out, 1});
                                   (void)request.reply(bytes);
                               }}}};
    server_.emplace(server::listen(ctx_, any_place, slow).value());
    chosen_.uris = {server_->endpoints().front() + "?insecure=true"};
    chosen_.clients = chosen_.depth = 1;
    chosen_.slo = 100ms;
    ASSERT_TRUE(run(scenario::peak, 30, 20));
    EXPECT_EQ(logged("Mode"), "FindPeakPerformance");
    const double peak = std::stod(logged("target_qps"));
    EXPECT_GE(peak, 20);
    EXPECT_LE(peak, 400) << "30 calls of 10 ms wait for less than 100 ms at no higher rate";
}

TEST(load_issue_queue, the_queue_answers_every_call_once_when_threads_leave) {
    std::atomic<int> answered{0};
    issue_queue calls(3, [&](std::uint64_t) { ++answered; });
    std::vector<std::jthread> clients;
    for (int i = 0; i < 3; ++i)
        clients.emplace_back([&, i] {
            for (int n = 0; n < 100 * (i + 1);) {
                const auto call = calls.take();
                if (!call) continue;
                calls.answer(call->id);
                ++n;
            }
            calls.leave();
        });
    std::vector<std::uint64_t> ids(50);
    std::iota(ids.begin(), ids.end(), 1);
    for (int i = 0; i < 20; ++i) calls.add(ids);
    clients.clear();
    EXPECT_EQ(answered, 1'000);
    EXPECT_EQ(calls.unsent(), 400U);
    calls.add(ids);
    EXPECT_EQ(answered, 1'050) << "behind the last client";
    calls.close();
    EXPECT_TRUE(calls.is_over());
}

/// That at most `late` of `calls` are, where each is with 1 %.
double binomial(std::uint64_t calls, std::uint64_t late) {
    double one = std::pow(0.99, static_cast<double>(calls));
    double sum = one;
    for (std::uint64_t k = 0; k < late; ++k)
        sum += one *= static_cast<double>(calls - k) / static_cast<double>(k + 1) / 99;
    return sum;
}

// Source: the binomial distribution: the fewest n with P(at most `late` of n are) <= 1 %, where each is with 1 %.
TEST(load_early_stopping, early_stopping_needs_enough_calls_to_be_certain) {
    EXPECT_EQ(calls_for_early_stopping(0), 459U);
    for (std::uint64_t late = 0; late < 50; ++late) {
        const std::uint64_t calls = calls_for_early_stopping(late);
        EXPECT_LE(binomial(calls, late), 0.01) << late;
        EXPECT_GT(binomial(calls - 1, late), 0.01) << late;
    }
}

/// A run of so many calls, whose last one was due after `due`.
struct judged_run {
    std::uint64_t answered, within, unsent;
    std::chrono::milliseconds due;
    std::string_view broken;  ///< constraint
    scenario what = scenario::server;
};

TEST(load_summary, a_run_is_valid_only_if_it_keeps_every_constraint) {
    constexpr std::string_view latency = "Performance constraints satisfied", duration = "Min duration satisfied",
                               queries = "Min queries satisfied", stopping = "Early stopping satisfied";
    const std::string folder = std::filesystem::temp_directory_path() / ("load-judged-" + std::to_string(::getpid()));
    for (const judged_run& each : std::initializer_list<judged_run>{{2010, 2000, 0, 100ms, ""},
                                                                    {2009, 1999, 0, 100ms, stopping},
                                                                    {3000, 2969, 0, 100ms, latency},
                                                                    {3000, 3000, 0, 99ms, duration},
                                                                    {999, 999, 0, 100ms, queries},
                                                                    {990, 990, 10, 100ms, stopping},
                                                                    {2000, 2000, 10, 100ms, ""},
                                                                    {2000, 2000, 40, 100ms, latency},
                                                                    {1000, 0, 0, 0ms, "", scenario::offline},
                                                                    {999, 0, 0, 0ms, queries, scenario::offline}}) {
        SCOPED_TRACE(testing::Message() << each.answered << " calls, " << each.within << ", " << each.due.count());
        load_settings chosen;
        chosen.model = find_model("digits");
        load_outcome outcome;
        outcome.start = 5s;
        outcome.wall = 100ms;
        outcome.normal.answered = each.answered;
        outcome.normal.within_slo = each.within;
        outcome.normal.unsent = each.unsent;
        outcome.normal.last_due = 5s + each.due;
        ASSERT_TRUE(write_mlperf_summary({folder, each.what, 1000, 100ms, 500}, chosen, outcome));
        EXPECT_EQ(mlperf_value(folder, "Result is"), each.broken.empty() ? "VALID" : "INVALID");
        for (const std::string_view name : {latency, duration, queries, stopping}) {
            const bool late = name == stopping && each.broken == latency;  // then more calls would be needed
            EXPECT_EQ(mlperf_value(folder, name) == "NO", late || name == each.broken) << name;
        }
    }
    std::filesystem::remove_all(folder);
}

/// The whole file.
std::string summary_in(const std::string& folder) {
    std::ifstream file(folder + "/mlperf_log_summary.txt");
    return {std::istreambuf_iterator<char>{file}, {}};
}

std::string heading(const std::string& title) {
    const std::string rule(48, '=');
    return rule + '\n' + title + '\n' + rule + '\n';
}

TEST(load_summary, a_log_has_every_figure_of_its_run) {
    const std::string folder = std::filesystem::temp_directory_path() / ("load-written-" + std::to_string(::getpid()));
    load_settings chosen;
    chosen.model = find_model("digits");
    chosen.slo = 10ms;
    chosen.seed = 3;
    load_outcome outcome;
    outcome.scheme = "tcp";
    outcome.start = 5s;
    outcome.wall = 2s;
    outcome.normal.answered = 10;
    outcome.normal.wrong = 1;
    outcome.normal.within_slo = 8;
    outcome.normal.unsent = 1;
    outcome.normal.last_due = 9s;
    for (const auto time : {1000ns, 2000ns}) outcome.normal.stages[0].record(time);
    outcome.normal.add_error(status::timed_out, "late");
    ASSERT_TRUE(write_mlperf_summary({folder, scenario::server, 1000, 5s, 500}, chosen, outcome));
    const std::string latencies =
        "Min latency (ns)                : 1000\nMax latency (ns)                : 2000\n"
        "Mean latency (ns)               : 1500\n50.00 percentile latency (ns)   : 1000\n"
        "90.00 percentile latency (ns)   : 2000\n95.00 percentile latency (ns)   : 2000\n"
        "97.00 percentile latency (ns)   : 2000\n99.00 percentile latency (ns)   : 2000\n"
        "99.90 percentile latency (ns)   : 2000\n\n";
    const std::string unused =
        "qsl_rng_seed : 3\nsample_index_rng_seed : 3\nschedule_rng_seed : 3\naccuracy_log_rng_seed : 0\n"
        "accuracy_log_probability : 0\naccuracy_log_sampling_target : 0\nprint_timestamps : 0\n"
        "performance_issue_unique : 0\nperformance_issue_same : 0\nperformance_issue_same_index : 0\n"
        "performance_sample_count : 1\naccuracy_sample_count : 1\n\nNo warnings encountered during test.\n\n";
    EXPECT_EQ(summary_in(folder),
              heading("MLPerf Results Summary") +
                  "SUT name : digits over tcp\nScenario : Server\nMode     : PerformanceOnly\n"
                  "Completed samples per second    : 5.00\nResult is : INVALID\n"
                  "  Performance constraints satisfied : NO\n  Min duration satisfied : NO\n"
                  "  Min queries satisfied : NO\n  Early stopping satisfied: NO\nRecommendations:\n"
                  " * Reduce target QPS to improve latency.\n"
                  " * Increase the target QPS so the loadgen pre-generates more queries.\n"
                  " * The test exited early, before enough queries were issued.\n"
                  "   See the detailed log for why this may have occurred.\nEarly Stopping Result:\n"
                  " * Run unsuccessful.\n * Processed 12 queries.\n * Would need to run at least " +
                  std::to_string(calls_for_early_stopping(4) - 12) +
                  " more queries,\n with the run being successful if every additional\n query were under latency.\n\n" +
                  heading("Additional Stats") + "Scheduled samples per second : 3.00\n" + latencies +
                  heading("Test Parameters Used") +
                  "samples_per_query : 1\ntarget_qps : 500\ntarget_latency (ns): 10000000\nmax_async_queries : 0\n"
                  "min_duration (ms): 5000\nmax_duration (ms): 0\nmin_query_count : 1000\nmax_query_count : 0\n" +
                  unused + "2 ERRORS encountered. The first failure: timed_out: late\n");
    outcome.normal.wrong = 0;
    outcome.normal.errors = {};
    ASSERT_TRUE(write_mlperf_summary({folder, scenario::offline, 11, 2s, 500}, chosen, outcome));
    EXPECT_EQ(summary_in(folder),
              heading("MLPerf Results Summary") +
                  "SUT name : digits over tcp\nScenario : Offline\nMode     : PerformanceOnly\n"
                  "Samples per second: 5\nResult is : VALID\n  Min duration satisfied : Yes\n"
                  "  Min queries satisfied : Yes\n  Early stopping satisfied: Yes\n\n" +
                  heading("Additional Stats") + latencies + heading("Test Parameters Used") +
                  "samples_per_query : 11\ntarget_qps : 1\ntarget_latency (ns): 0\nmax_async_queries : 1\n"
                  "min_duration (ms): 2000\nmax_duration (ms): 0\nmin_query_count : 1\nmax_query_count : 0\n" +
                  unused + "No errors encountered during test.\n");
    outcome.normal.answered = outcome.normal.within_slo = 2000;
    ASSERT_TRUE(write_mlperf_summary({folder, scenario::peak, 1, 0s, 500}, chosen, outcome));
    EXPECT_EQ(mlperf_value(folder, "Mode"), "FindPeakPerformance");
    EXPECT_NE(
        summary_in(folder).find("  Early stopping satisfied: Yes\nEarly Stopping Result:\n * Run successful.\n\n"),
        std::string::npos);
    EXPECT_EQ(mlperf_value(folder, "nothing"), std::nullopt);
    EXPECT_EQ(mlperf_value("/no/folder", "Mode"), std::nullopt);
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace accel::examples::serving
