// SPDX-License-Identifier: Apache-2.0
// examples/serving/load, at small servers of this process.
#include "report/child_process.hpp"
#include "serving/load/inputs.hpp"
#include "serving/load/output.hpp"
#include "serving/load/run.hpp"
#include "serving/models/digits_model.hpp"
#include "serving/models/shapes_file.hpp"
#include "serving/models/synthetic.hpp"

#include <accel_transport/server.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
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

/// Of digits, whose scores may differ a little between processors.
TEST(load_input, an_answer_is_right_if_it_has_the_shapes_and_the_values_of_the_model) {
    auto ctx = context::open().value();
    for (const bool raw : {false, true}) {
        load_settings wanted = with_slo();
        wanted.raw = raw;
        wanted.expect = expectation::digits;
        const auto input = load_input::make(ctx, wanted, 5).value();
        const auto model = make_digits().value();
        std::vector<std::byte> tensors(256), answer(40 + 64);
        const std::span<const std::byte> sent = input.request().bytes();
        if (raw)
            ASSERT_TRUE(model->preprocess(nullptr, sent, tensors));
        else
            std::ranges::copy(sent, tensors.begin());
        const model_job job{tensors, std::span{answer}.first(40)};
        ASSERT_TRUE(model->infer(nullptr, {&job, 1}));
        const tensor good = wanted.model->outputs.front();
        EXPECT_TRUE(input.is_right({&good, 1}, answer));
        for (const std::size_t at : {0U, 9U})
            for (const auto& [by, right] :
                 {std::pair{0.9e-4F, true}, {-0.9e-4F, true}, {1.2e-4F, false}, {-1.2e-4F, false}, {NAN, false}}) {
                std::vector<std::byte> changed = answer;
                float score = 0;
                std::memcpy(&score, changed.data() + at * sizeof score, sizeof score);
                score += by;
                std::memcpy(changed.data() + at * sizeof score, &score, sizeof score);
                EXPECT_EQ(input.is_right({&good, 1}, changed), right) << "score " << at << " by " << by;
            }
        const auto changed = [&](const auto& change) {
            tensor one = good;
            change(one);
            return input.is_right({&one, 1}, answer);
        };
        EXPECT_FALSE(changed([](tensor& one) { one.type.code = type_code::signed_integer; }));
        EXPECT_FALSE(changed([](tensor& one) { --one.rank; }));
        EXPECT_FALSE(changed([](tensor& one) { ++one.shape[0]; }));
        EXPECT_FALSE(changed([](tensor& one) { --one.shape[1]; }));
        EXPECT_FALSE(changed([](tensor& one) { one.offset = 64; })) << "there are zeros";
        std::copy_n(answer.begin(), 40, answer.begin() + 64);
        EXPECT_TRUE(changed([](tensor& one) { one.offset = 64; }));
        EXPECT_FALSE(input.is_right({}, answer));
        EXPECT_FALSE(input.is_right(std::array{good, good}, answer));
        EXPECT_EQ(input.undescribed(std::span{answer}.first(40)).size(), 1U);
        for (const std::size_t bytes : {39U, 41U})
            EXPECT_TRUE(input.undescribed(std::span{answer}.first(bytes)).empty());
        wanted.expect = expectation::shape;
        EXPECT_TRUE(load_input::make(ctx, wanted, 5).value().is_right({&good, 1}, std::vector<std::byte>(40)));
    }
}

TEST(load_input, every_byte_of_every_output_of_a_synthetic_model_counts) {
    auto ctx = context::open().value();
    load_settings wanted = with_slo();
    wanted.model = find_model("yolo_v4");
    wanted.expect = expectation::synthetic;
    const auto input = load_input::make(ctx, wanted, 1).value();
    std::vector<std::byte> answer(payload_bytes(wanted.model->outputs));
    synthetic_answer(input.request().bytes(), answer);
    const auto outputs = input.undescribed(answer);
    ASSERT_EQ(outputs.size(), 3U);
    EXPECT_TRUE(input.is_right(outputs, answer));
    for (const tensor& each : outputs)
        for (const std::size_t at : {std::size_t{0}, std::size_t{size_bytes(each)} - 1}) {
            answer[each.offset + at] ^= std::byte{1};
            EXPECT_FALSE(input.is_right(outputs, answer)) << each.offset << ", " << at;
            answer[each.offset + at] ^= std::byte{1};
        }
}

TEST(load_input, the_expected_answer_depends_on_the_option_and_the_model) {
    EXPECT_EQ(expectation_of("auto", "digits"), expectation::digits);
    EXPECT_EQ(expectation_of("auto", "resnet50"), expectation::shape);
    EXPECT_EQ(expectation_of("digits", "resnet50"), expectation::digits);
    EXPECT_EQ(expectation_of("synthetic", "digits"), expectation::synthetic);
    EXPECT_EQ(expectation_of("shape", "digits"), expectation::shape);
}

}  // namespace
}  // namespace accel::examples::serving
