// SPDX-License-Identifier: Apache-2.0
// examples/serving/load, at small servers of this process.
#include "report/child_process.hpp"
#include "serving/load/inputs.hpp"
#include "serving/load/output.hpp"
#include "serving/load/run.hpp"
#include "serving/models/shapes_file.hpp"
#include "serving/models/synthetic.hpp"

#include <accel_transport/server.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
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

TEST_P(load_at, right_answers_are_counted_by_class_with_all_stages) {
    load_settings wanted = small_load(serve());
    wanted.clients = 3;
    wanted.priority_clients = 1;
    wanted.slo = 1h;
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    EXPECT_EQ(seen.value().scheme, GetParam());
    for (const auto& [of, calls] : {std::pair{&seen.value().high, 20U}, {&seen.value().normal, 40U}}) {
        EXPECT_EQ(of->answered, calls);
        EXPECT_EQ(of->within_slo, calls);
        EXPECT_EQ(of->wrong + of->failed() + of->unsent, 0U);
        for (const report::histogram& each : of->stages) EXPECT_EQ(each.count(), calls);
        EXPECT_GT(of->stages[0].mean_ns(), of->stages[1].mean_ns()) << "total and request";
    }
}

/// After the warm-up, of four requests one fails, and two have a wrong byte, the first or the last one.
TEST_P(load_at, wrong_and_failed_answers_are_counted_apart) {
    const auto three_of_four = [](int number, exchange& request, std::span<std::byte> answer) {
        if (number % 4 == 0) request.fail(status::overloaded, 0, "not now");
        if (number % 4 == 1 && number > 1) answer.back() ^= std::byte{1};
        if (number % 4 == 2) answer.front() ^= std::byte{1};
        return number % 4 == 0;
    };
    load_settings wanted = small_load(serve(three_of_four));
    wanted.slo = 1h;
    const auto seen = run_load(ctx_, wanted);
    ASSERT_TRUE(seen) << seen.error().message;
    const measured all = seen.value().all();
    EXPECT_EQ(all.calls(), 20U);
    EXPECT_EQ(all.answered, 15U);
    EXPECT_EQ(all.wrong, 10U);
    EXPECT_EQ(all.within_slo, 5U) << "a wrong answer is in time for nobody";
    EXPECT_EQ(all.errors[static_cast<std::size_t>(status::overloaded)], 5U);
    EXPECT_EQ(all.first_error, "overloaded: not now");
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

struct ended_load {
    int status = -1;
    std::string text;
};

/// The program with these arguments, and what it says.
ended_load run_program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), report::program_path("load"));
    arguments.insert(arguments.end(), {"--gpu", "-1"});
    auto load = report::child_process::start(arguments);
    EXPECT_TRUE(load) << load.error().message;
    ended_load out;
    while (const auto line = load->read_line(30s)) out.text += *line;
    out.status = load->wait(10s).value_or(-1);
    return out;
}

TEST(load_shapes_file, a_described_model_is_measured_without_the_table) {
    const auto path = std::filesystem::temp_directory_path() / ("load-shapes-" + std::to_string(::getpid()));
    std::ofstream(path) << R"({"name":"mine","gflops":0.001,
        "inputs":[{"name":"ids","datatype":"INT64","shape":[1,16],"values":100}],
        "outputs":[{"name":"found","datatype":"FP32","shape":[-1,6],"max_bytes":72}]})";
    const std::string uri = "local://load-" + std::to_string(::getpid());
    const ended_load seen = run_program({uri, "--shapes", path.string(), "--in-process", "mine=synthetic", "--expect",
                                         "synthetic", "--clients", "16", "--requests", "4", "--json", "-"});
    EXPECT_EQ(seen.status, 0) << seen.text;
    const auto document = nlohmann::json::parse(seen.text);
    EXPECT_EQ(document["model"], "mine");
    EXPECT_EQ(document["requests"], 64);
    EXPECT_EQ(document["wrong"], 0);
    EXPECT_EQ(run_program({uri, "--shapes", path.string(), "--model", "other"}).status, 1);
    std::ofstream(path) << R"({"name":"mine"})";
    EXPECT_EQ(run_program({uri, "--shapes", path.string()}).status, 1);
    EXPECT_EQ(run_program({uri}).status, 1);
    std::filesystem::remove(path);
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
    for (const double peak_rate : {0.0, 10.0, 99.0, 613.0, 975.0, 1000.0}) {
        SCOPED_TRACE(peak_rate);
        int trials = 0;
        const auto found = find_peak(with_slo(), [&](const load_settings& load) -> result<load_outcome> {
            EXPECT_EQ(load.rate > 0, ++trials > 1) << "the first trial sends all calls at once";
            return outcome_of(load.rate <= peak_rate ? 995 : 900);
        });
        ASSERT_TRUE(found);
        EXPECT_LE(found.value().rate, peak_rate);
        EXPECT_GE(found.value().rate, peak_rate * 0.95);
        EXPECT_EQ(found.value().at.has_value(), peak_rate > 0);
        EXPECT_EQ(found.value().trials, trials - 1);
        EXPECT_LE(trials, 13);
    }
    const auto failed = [](const load_settings&) -> result<load_outcome> { return error{status::peer_lost, 0, ""}; };
    EXPECT_EQ(find_peak(with_slo(), failed).code(), status::peer_lost);
}

TEST(load_peak, one_call_in_a_hundred_may_be_late_or_unsent) {
    EXPECT_TRUE(keeps_slo(outcome_of(990)));
    EXPECT_FALSE(keeps_slo(outcome_of(989)));
    EXPECT_TRUE(keeps_slo(outcome_of(1000, 10)));
    EXPECT_FALSE(keeps_slo(outcome_of(1000, 11)));
    EXPECT_FALSE(keeps_slo({})) << "nothing was due";
}

/// Calls of 1, 2, … `calls` us in each stage, longer by a stage's number in all of them.
measured known_times(int calls) {
    measured out;
    for (std::size_t stage = 0; stage < stage_count; ++stage)
        for (int i = 1; i <= calls; ++i) out.stages[stage].record((i + static_cast<int>(stage) * 10'000) * 1us);
    out.answered = static_cast<std::uint64_t>(calls);
    out.wrong = 3;
    out.within_slo = 5;
    out.unsent = 2;
    for (int i = 0; i < 4; ++i) out.add_error(status::timed_out, "late");
    out.delay.record(7us);
    return out;
}

TEST(load_output, figures_of_known_times_are_right) {
    load_settings chosen = with_slo();
    chosen.clients = 2;
    chosen.priority_clients = 1;
    chosen.rate = 100;
    load_outcome outcome;
    outcome.wall = 2s;
    outcome.cpu = {.user = 2014us, .kernel = 1007us};
    outcome.high = known_times(1000);
    outcome.normal = known_times(1000);
    outcome.normal.add_error(status::peer_lost, "");
    const auto document = load_json(chosen, outcome);
    EXPECT_EQ(document["requests"], 2009);
    EXPECT_EQ(document["wrong"], 6);
    EXPECT_EQ(document["unsent"], 4);
    EXPECT_EQ(document["within_slo"], 10);
    EXPECT_EQ(document["errors"], (nlohmann::json{{"timed_out", 8}, {"peer_lost", 1}}));
    EXPECT_EQ(document["first_error"], "timed_out: late");
    EXPECT_EQ(document["classes"]["high"]["requests"], 1004);
    EXPECT_EQ(document["classes"]["normal"]["errors"]["peer_lost"], 1);
    EXPECT_DOUBLE_EQ(document["rate"].get<double>(), 2009 / 2.0);
    EXPECT_DOUBLE_EQ(document["goodput"].get<double>(), 5);
    EXPECT_NEAR(document["cpu_user_us_per_request"].get<double>(), 2014.0 / 2009, 1e-9);
    std::size_t number = 0;
    for (const stage_name& each : stage_names()) {
        const double more = 10'000.0 * static_cast<double>(number++);
        const auto& figures = document[std::string{each.name} + "_us"];
        for (const auto& [name, value] : std::initializer_list<std::pair<const char*, double>>{
                 {"mean", 500.5}, {"p50", 500}, {"p90", 900}, {"p99", 990}, {"p999", 999}, {"max", 1000}})
            EXPECT_NEAR(figures[name].get<double>(), value + more, (value + more) / 500) << each.name << ' ' << name;
        EXPECT_NEAR(figures["cov"].get<double>(), 288.675 / (500.5 + more), 1e-3) << each.name;
    }
    EXPECT_NEAR(document["total_distribution_us"][4][1].get<double>(), 250, 1) << "25 %";
    const std::string csv = load_csv(chosen, outcome);
    EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 2 * static_cast<int>(stage_count));
    EXPECT_NE(csv.find("digits,,0,2,high,1004,3,4,total,500."), std::string::npos) << csv;
    EXPECT_NE(load_table(chosen, outcome).find("2009 calls in 2.00 s (1004/s), 6 wrong, 9 failed"), std::string::npos)
        << load_table(chosen, outcome);
}

/// A detector's shapes: token ids, masks and halves in, up to three rows out.
model_shapes detector() {
    return shapes_of(oip::read_description(R"({"name":"detector",
        "inputs":[{"name":"ids","datatype":"INT64","shape":[1,64],"values":30522},
                  {"name":"mask","datatype":"INT32","shape":[1,64]},
                  {"name":"half","datatype":"FP16","shape":[64]},
                  {"name":"flags","datatype":"BOOL","shape":[64]},
                  {"name":"bytes","datatype":"UINT8","shape":[256]},
                  {"name":"few","datatype":"UINT8","shape":[256],"values":7}],
        "outputs":[{"name":"rows","datatype":"FP32","shape":[-1,2],"max_bytes":24}]})")
                         .value())
        .value();
}

template <class Number>
std::vector<Number> numbers_of(const load_input& from, std::size_t index) {
    const auto bytes = bytes_of(from.tensors()[index], std::span<const std::byte>{from.request().bytes()});
    std::vector<Number> out(bytes.size() / sizeof(Number));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

TEST(load_input, numbers_are_within_the_range_of_their_input) {
    auto ctx = context::open().value();
    const model_shapes shapes = detector();
    load_settings wanted = with_slo();
    wanted.model = &shapes;
    const auto made = load_input::make(ctx, wanted, 1);
    ASSERT_TRUE(made) << made.error().message;
    const auto ids = numbers_of<std::int64_t>(made.value(), 0);
    EXPECT_GE(*std::ranges::min_element(ids), 0);
    EXPECT_LT(*std::ranges::max_element(ids), 30'522);
    EXPECT_GT(*std::ranges::max_element(ids), 1'000);
    const auto mask = numbers_of<std::int32_t>(made.value(), 1);
    EXPECT_EQ(std::set(mask.begin(), mask.end()), (std::set<std::int32_t>{0, 1}));
    for (const std::uint16_t each : numbers_of<std::uint16_t>(made.value(), 2))
        EXPECT_LT(each & 0x7c00, 0x4c00) << "a half of less than 16";
    const auto flags = numbers_of<std::uint8_t>(made.value(), 3);
    EXPECT_EQ(std::set(flags.begin(), flags.end()), (std::set<std::uint8_t>{0, 1}));
    EXPECT_GT(std::ranges::max(numbers_of<std::uint8_t>(made.value(), 4)), 128);
    EXPECT_EQ(std::ranges::max(numbers_of<std::uint8_t>(made.value(), 5)), 6);
}

TEST(load_input, open_outputs_may_be_shorter_and_not_longer) {
    auto ctx = context::open().value();
    const model_shapes shapes = detector();
    load_settings wanted = with_slo();
    wanted.model = &shapes;
    const auto any = load_input::make(ctx, wanted, 1).value();
    const std::array<std::byte, 64> answer{};
    const auto is_right = [&](const load_input& by, std::uint32_t rows, std::uint32_t columns) {
        const tensor seen{{}, 2, 0, {rows, columns}};
        return by.is_right({&seen, 1}, std::span{answer}.first(std::size_t{rows} * columns * 4));
    };
    for (const std::uint32_t rows : {0U, 1U, 3U}) EXPECT_TRUE(is_right(any, rows, 2)) << rows;
    EXPECT_FALSE(is_right(any, 4, 2));
    EXPECT_FALSE(is_right(any, 1, 3));
}

TEST(load_input, open_outputs_of_a_synthetic_model_are_known) {
    auto ctx = context::open().value();
    const model_shapes shapes = detector();
    const auto reference = make_synthetic(shapes, {1e9, synthetic_pace::wait});
    load_settings wanted = with_slo();
    wanted.model = &shapes;
    wanted.expect = expectation::synthetic;
    std::set<std::uint32_t> rows;
    for (std::uint32_t client = 0; client < 16; ++client) {
        const auto made = load_input::make(ctx, wanted, client).value();
        std::vector<tensor> said = shapes.outputs;
        std::vector<std::byte> answer(payload_bytes(said));
        const model_job job{made.request().bytes(), answer, said};
        ASSERT_TRUE(reference->infer(nullptr, {&job, 1}));
        answer.resize(payload_bytes(said));
        EXPECT_TRUE(made.is_right(said, answer));
        rows.insert(said[0].shape[0]);
        if (!answer.empty()) answer.back() ^= std::byte{1};
        EXPECT_EQ(made.is_right(said, answer), answer.empty());
        said[0].shape[0] = said[0].shape[0] == 0 ? 1 : 0;
        answer.resize(payload_bytes(said));
        EXPECT_FALSE(made.is_right(said, answer));
    }
    EXPECT_EQ(rows, (std::set<std::uint32_t>{0, 1, 2, 3}));
}

TEST(load_input, inputs_follow_their_seed_and_raw_images_are_one_tensor_of_bytes) {
    auto ctx = context::open().value();
    load_settings wanted = with_slo();
    wanted.model = find_model("resnet50");
    for (const bool raw : {false, true}) {
        wanted.raw = raw;
        auto one = load_input::make(ctx, wanted, 1).value();
        const auto same = load_input::make(ctx, wanted, 1);
        const auto other = load_input::make(ctx, wanted, 2);
        EXPECT_TRUE(std::ranges::equal(one.request().bytes(), same.value().request().bytes()));
        EXPECT_FALSE(std::ranges::equal(one.request().bytes(), other.value().request().bytes()));
        EXPECT_EQ(one.request().size(), raw ? 819'000U : 602'112U);
        ASSERT_EQ(one.tensors().size(), 1U);
        EXPECT_EQ(size_bytes(one.tensors().front()), one.request().size());
        EXPECT_EQ(one.tensors().front().type == (data_type{type_code::unsigned_integer, 8, 1}), raw);
    }
}

}  // namespace
}  // namespace accel::examples::serving
