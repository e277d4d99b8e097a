// SPDX-License-Identifier: Apache-2.0
// examples/serving/load as a program, which serves a model of its own.
#include "error_output.hpp"
#include "patience.hpp"
#include "report/child_process.hpp"
#include "serving/load/loadgen.hpp"
#include "serving/load/mlperf_log.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace accel::examples::serving {
namespace {

using namespace std::chrono_literals;
using words = std::vector<std::string>;

struct ended_program {
    int status = -1;
    std::string output;
    std::string errors;
};

class load_program : public ::testing::Test {
  public:
    ~load_program() override { std::filesystem::remove_all(folder_); }

  protected:
    static ended_program run(const words& more) {
        words all{report::program_path("load"), "local://load-program-" + std::to_string(::getpid())};
        all.insert(all.end(), more.begin(), more.end());
        const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(tests::patience(60s));
        const tests::error_output said;
        auto load = report::child_process::start(all).value();
        ended_program out;
        while (const auto line = load.read_line(patience)) out.output += *line + '\n';
        out.status = load.wait(patience).value_or(-1);
        out.errors = said.text();
        return out;
    }
    /// At a server of its own, six calls of each client.
    static ended_program serve(const words& more, bool json = true) {
        words all{"--model", "mobilenet_v3", "--in-process", "mobilenet_v3", "--synthetic-gflops",
                  "100000",  "--gpu",        "-1",           "--requests",   "6"};
        if (json) all.insert(all.end(), {"--json", "-"});
        all.insert(all.end(), more.begin(), more.end());
        return run(all);
    }
    static nlohmann::json document_of(const words& more) {
        const ended_program ended = serve(more);
        EXPECT_EQ(ended.status, 0) << ::testing::PrintToString(more) << ended.errors;
        return nlohmann::json::parse(ended.output, nullptr, false);
    }

    const std::string folder_ = std::filesystem::temp_directory_path() / ("load-program-" + std::to_string(::getpid()));
};

TEST_F(load_program, options_are_followed) {
    for (const auto& [more, wanted] : std::initializer_list<std::pair<words, nlohmann::json>>{
             {{"--warm-up", "4"},
              {{"requests", 6},
               {"clients", 1},
               {"depth", 1},
               {"loop", "closed"},
               {"checked", false},
               {"raw", false},
               {"warm_up_calls", 4},
               {"slo_us", nullptr},
               {"classes", nullptr}}},
             {{"--clients", "3", "--priority-clients", "1"}, {{"requests", 18}, {"clients", 3}, {"warm_up_calls", 30}}},
             {{"--clients", "2", "--priority-clients", "2", "--at-least", "6"}, {{"requests", 12}, {"clients", 2}}},
             {{"--raw", "--expect", "synthetic"}, {{"raw", true}, {"checked", true}, {"wrong", 0}}},
             {{"--offline"}, {{"loop", "offline"}, {"depth", 8}}},
             {{"--offline", "--depth", "3"}, {{"loop", "offline"}, {"depth", 3}}},
             {{"--depth", "2", "--slo", "1h"}, {{"depth", 2}, {"slo_us", 3.6e9}, {"within_slo", 6}}},
             {{"--rate", "10000"}, {{"loop", "open"}, {"depth", 8}, {"wanted_rate", 10'000.0}, {"requests", 6}}},
             {{"--duration", "1us", "--at-least", "4"}, {{"requests", 4}}},
             {{"--warm-up", "0", "--streams", "1"}, {{"requests", 6}, {"warm_up_calls", 0}}}}) {
        const auto seen = document_of(more);
        for (const auto& [key, value] : wanted.items())
            EXPECT_EQ(seen.value(key, nlohmann::json{}), value) << ::testing::PrintToString(more) << key;
    }
    EXPECT_EQ(document_of({"--clients", "3", "--priority-clients", "1"})["classes"]["high"]["requests"], 6);
}

/// Of a stage on a GPU, where there is one; else what is missing.
TEST_F(load_program, a_client_preprocesses_images_on_a_gpu) {
    for (const words& more : {words{}, words{"--from-host"}}) {
        words all{"--preprocess-on", "0", "--expect", "synthetic"};
        all.insert(all.end(), more.begin(), more.end());
        const ended_program ended = serve(all);
        if (ended.status != 0) {
            EXPECT_TRUE(ended.errors.find("cuda:0 cannot be used") != std::string::npos ||
                        ended.errors.find("without CUDA") != std::string::npos)
                << ended.errors;
            continue;
        }
        const auto seen = nlohmann::json::parse(ended.output, nullptr, false);
        EXPECT_EQ(seen["requests"], 6);
        EXPECT_EQ(seen["wrong"], 0);
        EXPECT_TRUE(seen["checked"].get<bool>());
        EXPECT_GT(seen["preprocessing_us"]["mean"].get<double>(), 0);
    }
}

TEST_F(load_program, results_go_to_people_and_to_files) {
    std::filesystem::create_directories(folder_);
    const std::string csv = folder_ + "/a.csv", json = folder_ + "/a.json";
    const ended_program ended = serve({"--csv", csv, "--json", json}, false);
    EXPECT_EQ(ended.status, 0) << ended.errors;
    EXPECT_NE(ended.output.find("mobilenet_v3 over local, tensors: 1 clients, 6 calls in"), std::string::npos);
    std::ifstream lines(csv);
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>{lines}, {}, '\n'), 8);
    std::ifstream document(json);
    EXPECT_EQ(nlohmann::json::parse(document, nullptr, false)["requests"], 6);
    for (const char* option : {"--csv", "--json"}) {
        const ended_program failed = serve({option, "/dev/null/none"}, false);
        EXPECT_EQ(failed.status, 1) << option;
        EXPECT_NE(failed.errors.find("/dev/null/none"), std::string::npos) << failed.errors;
    }
}

TEST_F(load_program, the_peak_is_a_rate_that_was_tried) {
    const auto found = document_of({"--find-peak", "1h", "--warm-up", "1"});
    EXPECT_GT(found["trials"], 0);
    EXPECT_EQ(found["peak_rate"], found["wanted_rate"]);
    EXPECT_EQ(found["slo_us"], 3.6e9);
    EXPECT_EQ(found["depth"], 8);
    const ended_program none = serve({"--find-peak", "1us", "--warm-up", "1", "--duration", "50ms"});
    EXPECT_EQ(none.status, 1);
    EXPECT_EQ(none.errors, "load: no tested rate kept the SLO\n");
    const ended_program shown = serve({"--find-peak", "1h", "--warm-up", "1"}, false);
    EXPECT_EQ(shown.output.rfind("99 % keep the SLO at ", 0), 0U) << shown.output;
}

TEST_F(load_program, logs_of_mlperf_say_how_the_calls_were_made) {
    const auto logged = [&](std::string_view name) { return mlperf_value(folder_, name).value_or(""); };
    auto seen = document_of({"--rate", "9000", "--clients", "2", "--mlperf-log", folder_, "--generator", "own",
                             "--seed", "9", "--timeout", "20s", "--duration", "1ms"});
    EXPECT_EQ(seen["generator"], "own");
    EXPECT_EQ(seen["mlperf_result"], logged("Result is"));
    EXPECT_FALSE(seen.contains("peak_rate"));
    EXPECT_EQ(logged("Scenario"), "Server");
    EXPECT_EQ(logged("qsl_rng_seed"), "9");
    EXPECT_EQ(logged("target_qps"), "9000");
    EXPECT_EQ(logged("target_latency (ns)"), "20000000000") << "without an SLO the timeout";
    EXPECT_EQ(logged("min_query_count"), "12");
    EXPECT_EQ(logged("min_duration (ms)"), "1");
    EXPECT_EQ(document_of({"--offline", "--mlperf-log", folder_, "--generator", "own", "--slo", "1h"})["slo_us"],
              3.6e9);
    EXPECT_EQ(logged("Scenario"), "Offline");
    seen = document_of({"--find-peak", "1h", "--mlperf-log", folder_, "--generator", "own"});
    EXPECT_EQ(logged("Mode"), "FindPeakPerformance");
    EXPECT_NEAR(seen["peak_rate"].get<double>(), std::stod(logged("target_qps")), 1e-3);
    const auto shown = serve({"--offline", "--mlperf-log", folder_, "--generator", "own"}, false);
    EXPECT_EQ(shown.output.rfind("MLPerf (own): " + logged("Result is") + "; " + folder_, 0), 0U) << shown.output;
    EXPECT_EQ(serve({"--offline", "--mlperf-log", "/dev/null/none", "--generator", "own"}).errors,
              "load: cannot write /dev/null/none/mlperf_log_summary.txt\n");
    EXPECT_EQ(document_of({"--offline", "--mlperf-log", folder_})["generator"], has_loadgen() ? "loadgen" : "own");
}

TEST_F(load_program, options_that_do_not_go_together_are_refused) {
    for (const auto& [more, wanted] : std::initializer_list<std::pair<words, const char*>>{
             {{}, "--model"},
             {{"--model", "none"}, "there is no model 'none'"},
             {{"--model", "super_resolution", "--raw"}, "--raw: 'super_resolution' does not take raw images"},
             {{"--model", "resnet50", "--at-least", "8", "--requests", "7"}, "--at-least is more than --requests"},
             {{"--model", "resnet50", "--at-least", "1", "--rate", "1"}, "--at-least excludes an open loop"},
             {{"--model", "resnet50", "--mlperf-log", "x"}, "--mlperf-log needs --rate, --offline or --find-peak"},
             {{"--model", "resnet50", "--clients", "2", "--priority-clients", "3"},
              "--priority-clients: there are fewer --clients"},
             {{"--model", "resnet50", "--expect", "digits"}, "--expect digits: the model is not digits"},
             {{"--model", "resnet50", "--generator", "own"}, "--mlperf-log"},
             {{"--model", "resnet50", "--on", "gpu"}, "--in-process"},
             {{"--model", "resnet50", "--offline", "--rate", "1"}, "excludes"},
             {{"--model", "resnet50", "--find-peak", "1s", "--rate", "1"}, "excludes"},
             {{"--model", "resnet50", "--find-peak", "1s", "--offline"}, "excludes"},
             {{"--model", "resnet50", "--preprocess-on", "0", "--raw"}, "excludes"},
             {{"--model", "resnet50", "--preprocess-on", "0", "--depth", "2"}, "give --depth 1"},
             {{"--model", "resnet50", "--from-host"}, "--preprocess-on"},
             {{"--model", "resnet50", "--slo", "5"},
              "'5' is not a valid duration: expected a duration such as 20us, 500ms or 2s; did you mean 5s?"},
             {{"--model", "resnet50", "--in-process", "resnet50", "--streams", "0"},
              "'0' is not a valid number of streams"},
             {{"--model", "resnet50", "--in-process", "resnet50=none"}, "'none' is not a valid source of a model"},
             {{"--model", "resnet50", "--in-process", "digits", "--warm-up", "0", "--requests", "2"},
              "2 calls were not answered; the first failed because: not_found: the model 'resnet50' is not loaded"}}) {
        const ended_program ended = run(more);
        EXPECT_GT(ended.status, 0) << wanted;
        EXPECT_NE(ended.errors.find(wanted), std::string::npos) << ended.errors << " instead of " << wanted;
    }
    if (has_loadgen()) return;
    EXPECT_NE(run({"--model", "resnet50", "--offline", "--mlperf-log", "x", "--generator", "loadgen"})
                  .errors.find("no LoadGen"),
              std::string::npos);
}

TEST_F(load_program, numbers_have_a_range) {
    for (const auto& [option, least, most] :
         std::initializer_list<std::tuple<std::string, int, int>>{{"--clients", 1, 1024},
                                                                  {"--depth", 1, 1024},
                                                                  {"--requests", 1, 1'000'000'000},
                                                                  {"--at-least", 0, 1'000'000'000},
                                                                  {"--rate", 1, 10'000'000},
                                                                  {"--gpu", -1, 64}})
        for (const int wrong : {least - 1, most + 1})
            EXPECT_NE(run({"--model", "resnet50", option + '=' + std::to_string(wrong)}).errors.find(option),
                      std::string::npos)
                << option << ' ' << wrong;
    // After the numbers, this is refused all the same.
    for (const words& good : std::initializer_list<words>{
             {"--clients=1", "--depth=1", "--requests=1", "--at-least=0", "--rate=0.001", "--gpu=-1"},
             {"--clients=1024", "--depth=1024", "--requests=1000000000", "--rate=10000000", "--gpu=64"},
             {"--requests=1000000000", "--at-least=1000000000"}}) {
        words all{"--model", "resnet50", "--expect", "digits"};
        all.insert(all.end(), good.begin(), good.end());
        EXPECT_EQ(run(all).errors, "load: --expect digits: the model is not digits\n");
    }
}

}  // namespace
}  // namespace accel::examples::serving
