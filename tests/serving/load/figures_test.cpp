// SPDX-License-Identifier: Apache-2.0
// What examples/serving/load says of a measurement whose times are known.
#include "serving/load/output.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace accel::examples::serving {
namespace {

using namespace std::chrono_literals;

/// Calls of 1, 2, … `calls` us in each stage, longer by a stage's number × 10 ms in all of them.
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

/// Of 1000 calls.
constexpr std::array<double, 6> known_figures{500.5, 500, 900, 990, 999, 1000};
constexpr std::array<const char*, 6> figure_names{"mean", "p50", "p90", "p99", "p999", "max"};
double added_to(std::size_t stage) {
    return 10'000.0 * static_cast<double>(stage);
}

class load_figures : public ::testing::Test {
  protected:
    load_figures() {
        chosen_.model = find_model("digits");
        chosen_.slo = 10ms;
        chosen_.clients = 2;
        chosen_.priority_clients = 1;
        chosen_.rate = 100;
        seen_.scheme = "tcp";
        seen_.wall = 2s;
        seen_.cpu = {.user = 2014us, .kernel = 1007us};
        seen_.device_cpu = 4018us;
        seen_.resident_bytes = 3 << 20;
        seen_.warmed_up = 11;
        seen_.high = known_times(1000);
        seen_.normal = known_times(1000);
        seen_.normal.add_error(status::peer_lost, "");
    }
    /// The rows of the classes and stages: what stands before the numbers, and the numbers.
    void expect_rows(const std::vector<std::string>& lines, std::size_t texts, std::size_t numbers) const {
        ASSERT_EQ(lines.size(), 2 * stage_count);
        for (std::size_t i = 0; i < lines.size(); ++i) {
            SCOPED_TRACE(lines[i]);
            const std::size_t stage = i % stage_count;
            std::istringstream words{lines[i]};
            std::vector<std::string> all{std::istream_iterator<std::string>{words}, {}};
            ASSERT_EQ(all.size(), texts + numbers);
            EXPECT_EQ(all[texts - 1], stage_names()[stage].name);
            EXPECT_NE(std::ranges::find(all, i < stage_count ? "high" : "normal"), all.end());
            for (std::size_t n = 0; n < known_figures.size(); ++n) {
                const double wanted = known_figures[n] + added_to(stage);
                EXPECT_NEAR(std::stod(all[texts + n]), wanted, wanted / 500);
            }
            EXPECT_NEAR(std::stod(all[texts + 6]), 288.675 / (500.5 + added_to(stage)), 0.006);
            const double share = 100 * (1 + added_to(stage) / 500.5);
            EXPECT_NEAR(numbers > 7 ? std::stod(all[texts + 7]) : share, share, share / 500);
        }
    }

    load_settings chosen_;
    load_outcome seen_;
};

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream from{text};
    std::vector<std::string> out;
    for (std::string line; std::getline(from, line);) out.push_back(line);
    return out;
}

std::set<std::string> keys_of(const nlohmann::json& document) {
    std::set<std::string> out;
    for (const auto& [key, value] : document.items()) out.insert(key);
    return out;
}

TEST_F(load_figures, the_document_has_them_all) {
    seen_.gpu = gpu_use{5 << 20, 12.5};
    const auto document = load_json(chosen_, seen_);
    const nlohmann::json all{{"requests", 2009},
                             {"wrong", 6},
                             {"unsent", 4},
                             {"within_slo", 10},
                             {"errors", {{"timed_out", 8}, {"peer_lost", 1}}},
                             {"first_error", "timed_out: late"},
                             {"model", "digits"},
                             {"scheme", "tcp"},
                             {"raw", false},
                             {"loop", "open"},
                             {"clients", 2},
                             {"depth", 1},
                             {"checked", false},
                             {"warm_up_calls", 11},
                             {"seconds", 2.0},
                             {"rate", 2009 / 2.0},
                             {"goodput", 5.0},
                             {"slo_us", 10'000.0},
                             {"wanted_rate", 100.0},
                             {"rss_mib", 3.0},
                             {"cpu_user_us_per_request", 2014.0 / 2009},
                             {"cpu_kernel_us_per_request", 1007.0 / 2009},
                             {"cpu_device_us_per_request", 2.0},
                             {"gpu_memory_mib", 5.0},
                             {"gpu_utilisation", 12.5}};
    for (const auto& [key, wanted] : all.items()) EXPECT_EQ(document.value(key, nlohmann::json{}), wanted) << key;
    EXPECT_EQ(document["sent_late_us"]["p50"], 7.0);
    EXPECT_EQ(document["classes"]["high"]["requests"], 1004);
    EXPECT_EQ(document["classes"]["high"]["wrong"], 3);
    EXPECT_EQ(document["classes"]["high"]["errors"], (nlohmann::json{{"timed_out", 4}}));
    EXPECT_EQ(document["classes"]["normal"]["errors"]["peer_lost"], 1);
    for (std::size_t stage = 0; stage < stage_count; ++stage) {
        const std::string name = std::string{stage_names()[stage].name} + "_us";
        for (const nlohmann::json& figures : {document[name], document["classes"]["normal"][name]}) {
            for (std::size_t n = 0; n < known_figures.size(); ++n) {
                const double wanted = known_figures[n] + added_to(stage);
                EXPECT_NEAR(figures[figure_names[n]].get<double>(), wanted, wanted / 500) << name << figure_names[n];
            }
            EXPECT_NEAR(figures["cov"].get<double>(), 288.675 / (500.5 + added_to(stage)), 1e-3) << name;
        }
    }
    for (const auto& [name, more] : {std::pair{"total", added_to(0)}, {"inference", added_to(5)}}) {
        const auto& shares = document[std::string{name} + "_distribution_us"];
        ASSERT_EQ(shares.size(), 21U);
        for (std::size_t i = 0; i < 21; ++i) {
            const double percent = i < 19 ? 5.0 * static_cast<double>(i + 1) : i == 19 ? 99 : 100;
            EXPECT_EQ(shares[i][0], percent);
            EXPECT_NEAR(shares[i][1].get<double>(), 10 * percent + more, (10 * percent + more) / 500);
        }
    }
}

TEST_F(load_figures, the_document_says_nothing_of_what_was_not_there) {
    load_outcome nothing;
    chosen_ = {};
    chosen_.model = find_model("digits");
    const auto plain = load_json(chosen_, nothing);
    EXPECT_EQ(keys_of(plain), (std::set<std::string>{"requests",
                                                     "wrong",
                                                     "errors",
                                                     "total_us",
                                                     "request_us",
                                                     "queue_us",
                                                     "copy_us",
                                                     "preprocessing_us",
                                                     "inference_us",
                                                     "response_us",
                                                     "model",
                                                     "scheme",
                                                     "raw",
                                                     "loop",
                                                     "clients",
                                                     "depth",
                                                     "checked",
                                                     "warm_up_calls",
                                                     "seconds",
                                                     "rate",
                                                     "cpu_user_us_per_request",
                                                     "cpu_kernel_us_per_request",
                                                     "rss_mib",
                                                     "total_distribution_us",
                                                     "inference_distribution_us"}));
    EXPECT_EQ(plain["loop"], "closed");
    for (const char* each : {"rate", "cpu_user_us_per_request", "seconds"}) EXPECT_EQ(plain[each], 0.0) << each;
    EXPECT_EQ(plain["total_us"]["cov"], 0.0);
    nothing.gpu = gpu_use{1 << 20, {}};
    chosen_.depth = 2;
    chosen_.raw = true;
    chosen_.expect = expectation::synthetic;
    chosen_.priority_clients = chosen_.clients;
    const auto more = load_json(chosen_, nothing);
    EXPECT_EQ(more["loop"], "offline");
    EXPECT_EQ(more["raw"], true);
    EXPECT_EQ(more["checked"], true);
    EXPECT_FALSE(more.contains("gpu_utilisation"));
    EXPECT_EQ(keys_of(more["classes"]), std::set<std::string>{"high"});
}

TEST_F(load_figures, each_class_has_a_row_of_each_stage_in_the_csv_file) {
    std::string text = load_csv(chosen_, seen_);
    EXPECT_EQ(text.substr(0, text.find('\n')),
              "model,scheme,raw,clients,class,requests,wrong,failed,stage,mean_us,p50_us,p90_us,p99_us,p999_us,max_us,"
              "cov");
    EXPECT_NE(text.find("\ndigits,tcp,0,2,high,1004,3,4,total,"), std::string::npos) << text;
    EXPECT_NE(text.find("\ndigits,tcp,0,2,normal,1005,3,5,response,"), std::string::npos) << text;
    chosen_.raw = true;
    EXPECT_NE(load_csv(chosen_, seen_).find("\ndigits,tcp,1,2,high,"), std::string::npos);
    std::ranges::replace(text, ',', ' ');
    auto lines = lines_of(text);
    lines.erase(lines.begin());
    expect_rows(lines, 9, 7);
}

TEST_F(load_figures, the_table_ends_with_notes) {
    const std::string text = load_table(chosen_, seen_);
    auto lines = lines_of(text);
    const std::vector<std::string> notes{
        "digits over tcp, tensors: 2 clients, 2009 calls in 2.00 s (1004/s), 6 wrong, 9 failed",
        "client: CPU 1.0 us user and 0.5 us kernel a call, 3 MiB in RAM",
        "the emulated adapter: CPU 2.0 us a call, not counted above",
        "within 10.0 ms: 10 calls, 5.0/s",
        "100.0 calls/s were due; sent late by p99 7.0 us; 4 not sent",
        "the first failure: timed_out: late"};
    ASSERT_EQ(lines.size(), 2 + 2 * stage_count + notes.size()) << text;
    EXPECT_EQ(std::vector<std::string>(lines.end() - 6, lines.end()), notes);
    expect_rows({lines.begin() + 2, lines.end() - 6}, 2, 8);
    chosen_ = {};
    chosen_.model = find_model("digits");
    chosen_.raw = true;
    load_outcome nothing;
    nothing.scheme = "shm";
    lines = lines_of(load_table(chosen_, nothing));
    ASSERT_EQ(lines.size(), 2 + stage_count + 2);
    EXPECT_EQ(lines[2 + stage_count],
              "digits over shm, raw images: 1 clients, 0 calls in 0.00 s (0/s), 0 wrong, 0 failed");
    EXPECT_EQ(lines.back(), "client: CPU 0.0 us user and 0.0 us kernel a call, 0 MiB in RAM");
    std::istringstream row{lines[2]};
    EXPECT_EQ((std::vector<std::string>{std::istream_iterator<std::string>{row}, {}}),
              (std::vector<std::string>{"normal", "total", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.00", "0.0"}));
}

TEST(load_measured, figures_of_clients_are_added_up) {
    measured one = known_times(2);
    measured two = known_times(3);
    one.last_due = 9s;
    two.last_due = 5s;
    two.add_error(status::peer_lost, "gone");
    measured none;
    none.add(one);
    none.add(two);
    EXPECT_EQ(none.answered, 5U);
    EXPECT_EQ(none.failed(), 9U);
    EXPECT_EQ(none.calls(), 14U);
    EXPECT_EQ(none.wrong, 6U);
    EXPECT_EQ(none.within_slo, 10U);
    EXPECT_EQ(none.unsent, 4U);
    EXPECT_EQ(none.delay.count(), 2U);
    EXPECT_EQ(none.last_due, 9s);
    EXPECT_EQ(none.first_error, "timed_out: late");
    for (const report::histogram& each : none.stages) EXPECT_EQ(each.count(), 5U);
    measured first;
    first.add_error(status::closed, "");
    first.add(two);
    EXPECT_EQ(first.first_error, "closed");
}

}  // namespace
}  // namespace accel::examples::serving
