// SPDX-License-Identifier: Apache-2.0
// examples/serving/load, at small servers of this process.
#include "report/child_process.hpp"
#include "serving/load/inputs.hpp"
#include "serving/load/output.hpp"
#include "serving/load/run.hpp"
#include "serving/models/synthetic.hpp"

#include <accel_transport/server.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace accel::examples::serving {
namespace {

using namespace std::chrono_literals;

/// Changes an answer, or fails the request and says true.
using mischief = std::function<bool(int number, exchange& request, std::span<std::byte> answer)>;

/// A synthetic mobilenet_v3, with mistakes of its own.
handler small_model(std::atomic<int>& served, const mischief& change) {
    return [&served, change](exchange request) {
        tensor out = find_model("mobilenet_v3")->outputs.front();
        const std::size_t bytes = size_bytes(out);
        const std::span<std::byte> answer = request.response().first(bytes);
        synthetic_answer(request.request(), answer);
        if (change && change(++served, request, answer)) return;
        EXPECT_EQ(request.describe(bytes, {&out, 1}), status::ok);
        request.reply(bytes);
    };
}

class load_at : public ::testing::TestWithParam<const char*> {
  protected:
    /// The URI of a server like this.
    std::string serve(const mischief& change = {}) {
        const std::string name = std::string{GetParam()} == "shm"
                                     ? "shm://load-test-" + std::to_string(::getpid())
                                     : std::string{GetParam()} + "://127.0.0.1:0?insecure=true";
        const service_table models{{{"mobilenet_v3", small_model(served_, change)}}};
        const std::array uris{name};
        server_.emplace(server::listen(ctx_, uris, models).value());
        const bool keyless = std::string{GetParam()} == "shm";
        return server_->endpoints().front() + (keyless ? "" : "?insecure=true");
    }
    load_settings small_load(const std::string& uri) {
        load_settings out;
        out.uris = {uri};
        out.model = find_model("mobilenet_v3");
        out.expect = expectation::synthetic;
        out.requests = 20;
        out.warm_up = 1;
        out.gpu = -1;
        return out;
    }

    context ctx_ = context::open().value();
    std::atomic<int> served_{0};
    std::optional<server> server_;
};

INSTANTIATE_TEST_SUITE_P(schemes, load_at, ::testing::Values("tcp", "shm"),
                         [](const auto& each) { return std::string{each.param}; });

TEST_P(load_at, right_answers_are_counted_with_all_stages) {
    load_settings wanted = small_load(serve());
    wanted.clients = 3;
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    const measured all = seen.value().all();
    EXPECT_EQ(seen.value().scheme, GetParam());
    EXPECT_EQ(all.answered, 60U);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed(), 0U);
    for (const report::histogram& each : all.stages) EXPECT_EQ(each.count(), 60U);
    EXPECT_GT(all.stages[0].mean_ns(), all.stages[1].mean_ns()) << "total and request";
}

TEST_P(load_at, a_wrong_byte_anywhere_is_noticed) {
    const auto wrong_bit = [](int number, exchange&, std::span<std::byte> answer) {
        if (number > 1) answer[number % 2 == 0 ? 0 : answer.size() - 1] ^= std::byte{1};
        return false;
    };
    const auto seen = run_load(ctx_, small_load(serve(wrong_bit)));
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().all().wrong, 20U);
    EXPECT_EQ(seen.value().all().within_slo, 0U);
}

TEST_P(load_at, the_program_fails_after_a_wrong_answer) {
    const auto last_is_wrong = [](int number, exchange&, std::span<std::byte> answer) {
        if (number == 8) answer[0] ^= std::byte{1};
        return false;
    };
    auto load = report::child_process::start({report::program_path("load"), serve(last_is_wrong), "--model",
                                              "mobilenet_v3", "--expect", "synthetic", "--warm-up", "0", "--requests",
                                              "8", "--json", "-", "--gpu", "-1"});
    ASSERT_TRUE(load) << load.error().message;
    std::string text;
    while (const auto line = load->read_line(10s)) text += *line;
    EXPECT_EQ(load->wait(10s), 1);
    const auto document = nlohmann::json::parse(text);
    EXPECT_EQ(document["wrong"], 1);
    EXPECT_EQ(document["requests"], 8);
    EXPECT_GT(document["total_us"]["p50"].get<double>(), 0);
}

TEST_P(load_at, failures_are_counted_by_their_status) {
    const auto every_fourth = [](int number, exchange& request, std::span<std::byte>) {
        if (number % 4 != 0) return false;
        request.fail(status::overloaded, 0, "not now");
        return true;
    };
    const auto seen = run_load(ctx_, small_load(serve(every_fourth)));
    ASSERT_TRUE(seen) << seen.error().message;
    const measured all = seen.value().all();
    EXPECT_EQ(all.errors[static_cast<std::size_t>(status::overloaded)], 5U);
    EXPECT_EQ(all.answered, 15U);
    EXPECT_EQ(all.calls(), 20U);
    EXPECT_EQ(all.first_error, "overloaded: not now");
}

TEST_P(load_at, clients_of_high_priority_are_a_class) {
    load_settings wanted = small_load(serve());
    wanted.clients = 3;
    wanted.priority_clients = 1;
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().high.answered, 20U);
    EXPECT_EQ(seen.value().normal.answered, 40U);
    const auto document = load_json(wanted, seen.value());
    EXPECT_EQ(document["classes"]["high"]["requests"], 20);
    EXPECT_EQ(document["requests"], 60);
}

TEST_P(load_at, a_short_duration_still_makes_the_least_number_of_calls) {
    load_settings wanted = small_load(serve());
    wanted.clients = 2;
    wanted.duration = 0ns;
    wanted.at_least = 7;
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().all().answered, 14U);
}

TEST_P(load_at, the_warm_up_goes_on_while_calls_become_faster) {
    const auto slow_at_first = [](int number, exchange&, std::span<std::byte>) {
        if (number <= 8) std::this_thread::sleep_for((9 - number) * 4ms);
        return false;
    };
    load_settings wanted = small_load(serve(slow_at_first));
    wanted.warm_up = 2;
    wanted.settle = 4s;  // a quarter of it has to be over
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_GT(seen.value().warmed_up, 8U);
    EXPECT_EQ(seen.value().all().answered, 20U);
    EXPECT_EQ(load_json(wanted, seen.value())["warm_up_calls"], seen.value().warmed_up);
}

TEST_P(load_at, the_warm_up_is_bounded) {
    std::atomic<int> calls{0};
    // Twice as long each time: no delay of a busy machine makes two of them equal.
    const auto never_the_same = [&calls](int, exchange&, std::span<std::byte>) {
        std::this_thread::sleep_for(1ms * (1 << std::min(calls.fetch_add(1), 8)));
        return false;
    };
    load_settings wanted = small_load(serve(never_the_same));
    wanted.settle = 1s;
    wanted.requests = 1;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(run_load(ctx_, wanted));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s);
    EXPECT_GE(calls, 4);
}

TEST_P(load_at, an_open_loop_counts_from_when_calls_were_due) {
    const auto stall_once = [](int number, exchange&, std::span<std::byte>) {
        if (number == 50) std::this_thread::sleep_for(200ms);
        return false;
    };
    load_settings wanted = small_load(serve(stall_once));
    wanted.requests = 300;
    wanted.rate = 500;
    wanted.slo = 20ms;
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    const measured all = seen.value().all();
    EXPECT_EQ(all.answered, 300U);
    // About 100 calls were due meanwhile, 90 of them more than 20 ms before the end of it.
    EXPECT_LE(all.within_slo, 240U);
    EXPECT_GE(all.stages[0].value_at(90), 50ms) << "one client with one call in flight, which has waited but once";
}

TEST_P(load_at, a_missing_model_is_named) {
    load_settings wanted = small_load(serve());
    wanted.model = find_model("resnet50");
    const auto seen = run_load(ctx_, wanted);
    ASSERT_FALSE(seen);
    EXPECT_NE(seen.error().message.find("no model 'resnet50'"), std::string::npos) << seen.error().message;
}

load_settings with_slo() {
    load_settings out;
    out.model = find_model("digits");
    out.slo = 10ms;
    return out;
}

/// Of 1000 calls in a second, so many are in time.
load_outcome outcome_of(std::uint64_t in_time, std::uint64_t unsent = 0) {
    load_outcome out;
    out.wall = 1s;
    out.normal.answered = 1000;
    out.normal.within_slo = in_time;
    out.normal.unsent = unsent;
    return out;
}

TEST(load_peak, the_peak_is_found_to_five_percent) {
    int trials = 0;
    const auto found = find_peak(with_slo(), [&](const load_settings& load) -> result<load_outcome> {
        ++trials;
        return outcome_of(load.rate <= 613 ? 995 : 900);
    });
    ASSERT_TRUE(found);
    EXPECT_LE(found.value().rate, 613);
    EXPECT_GT(found.value().rate, 613 * 0.95);
    EXPECT_EQ(found.value().trials, trials - 1);
}

TEST(load_peak, the_peak_is_zero_when_no_rate_keeps_the_latency) {
    const auto found =
        find_peak(with_slo(), [](const load_settings&) -> result<load_outcome> { return outcome_of(900); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found.value().rate, 0);
    EXPECT_FALSE(found.value().at);
}

TEST(load_peak, unsent_calls_count_as_late) {
    EXPECT_TRUE(keeps_slo(outcome_of(990)));
    EXPECT_FALSE(keeps_slo(outcome_of(989)));
    EXPECT_FALSE(keeps_slo(outcome_of(1000, 20)));
}

TEST(load_output, the_output_has_a_line_for_each_stage) {
    load_outcome outcome = outcome_of(1000);
    for (auto& each : outcome.normal.stages) each.record(2ms);
    const std::string csv = load_csv(with_slo(), outcome);
    EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + static_cast<int>(stage_count));
    EXPECT_NE(csv.find("digits,,0,1,normal,1000,0,0,total,"), std::string::npos) << csv;
    const auto document = load_json(with_slo(), outcome);
    for (const stage_name& each : stage_names())
        EXPECT_NEAR(document[std::string{each.name} + "_us"]["mean"].get<double>(), 2000, 2) << each.name;
    EXPECT_DOUBLE_EQ(document["goodput"].get<double>(), 1000);
}

TEST(load_input, inputs_of_the_same_seed_are_equal) {
    auto ctx = context::open().value();
    load_settings wanted = with_slo();
    wanted.model = find_model("mobilenet_v3");
    const auto one = load_input::make(ctx, wanted, 1);
    const auto same = load_input::make(ctx, wanted, 1);
    const auto other = load_input::make(ctx, wanted, 2);
    EXPECT_TRUE(std::ranges::equal(one.value().request().bytes(), same.value().request().bytes()));
    EXPECT_FALSE(std::ranges::equal(one.value().request().bytes(), other.value().request().bytes()));
    EXPECT_EQ(one.value().request().size(), 602'112U);
}

TEST(load_input, raw_images_are_one_tensor_of_bytes) {
    auto ctx = context::open().value();
    load_settings wanted = with_slo();
    wanted.model = find_model("resnet50");
    wanted.raw = true;
    const auto made = load_input::make(ctx, wanted, 0);
    ASSERT_TRUE(made);
    ASSERT_EQ(made.value().tensors().size(), 1U);
    const tensor& image = made.value().tensors().front();
    EXPECT_EQ(image.type, (data_type{type_code::unsigned_integer, 8, 1}));
    EXPECT_EQ(size_bytes(image), 819'000U);
    EXPECT_EQ(made.value().request().size(), 819'000U);
}

}  // namespace
}  // namespace accel::examples::serving
