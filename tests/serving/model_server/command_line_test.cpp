// SPDX-License-Identifier: Apache-2.0
// What the model server's command line sets, what its processes are told of it, and what they print.
#include "error_output.hpp"
#include "serving/model_server/contexts.hpp"
#include "serving/model_server/output.hpp"
#include "serving/model_server/settings.hpp"

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accel::tests {
namespace {

using namespace std::chrono_literals;
using namespace accel::examples::serving;
using ::testing::HasSubstr;
using words = std::vector<std::string>;
using values = std::map<std::string, std::string>;

const words usual{"tcp://a:1", "--model", "digits"};

std::optional<int> parse(words said, settings& out) {
    said.insert(said.begin(), program_name);
    std::vector<char*> pointers;
    for (std::string& each : said) pointers.push_back(each.data());
    return read_command_line(static_cast<int>(pointers.size()), pointers.data(), out);
}

settings read(const words& said) {
    settings out;
    EXPECT_EQ(parse(said, out), std::nullopt) << ::testing::PrintToString(said);
    return out;
}

words joined(words first, const words& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
}

/// The sentence.
std::string refused(const words& said) {
    const error_output output;
    settings out;
    EXPECT_GT(parse(said, out).value_or(0), 0) << ::testing::PrintToString(said);
    return output.text();
}

std::string list(const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& each : all) out += each + ' ';
    return out;
}

/// All that was chosen, by its option.
values values_of(const settings& of) {
    return {{"URI", list(of.uris)},
            {"--model", list(of.models)},
            {"--on", std::to_string(static_cast<int>(of.on))},
            {"--resident-raw", std::to_string(of.resident_raw)},
            {"--gpu", std::to_string(of.gpu)},
            {"--streams", of.streams.per_client ? "client" : std::to_string(of.streams.number)},
            {"--graphs", std::to_string(of.graphs)},
            {"--priority-streams", std::to_string(of.priority_streams)},
            {"--contexts", std::to_string(of.contexts)},
            {"--max-batch", std::to_string(of.max_batch)},
            {"--max-wait", std::to_string(of.max_wait.count())},
            {"--warm-up", std::to_string(of.warm_up)},
            {"--synthetic-gflops", std::to_string(of.synthetic.gflops_per_second)},
            {"--synthetic-pace", std::to_string(of.synthetic.pace == synthetic_pace::busy)},
            {"--metrics", of.metrics},
            {"--control", std::to_string(of.control)},
            {"--json", std::to_string(of.json)}};
}

/// This option sets this value, and all others are as they were.
void expect_only(const words& beside, const std::string& option, const words& given, const std::string& held) {
    values wanted = values_of(read(beside));
    wanted.at(option) = held;
    EXPECT_EQ(values_of(read(joined(joined(beside, {option}), given))), wanted) << option;
}

TEST(model_server_command_line, each_option_sets_its_own_value) {
    EXPECT_EQ(values_of(read(usual)).at("URI") + values_of(read(usual)).at("--model"), "tcp://a:1 digits ");
    expect_only(usual, "--model", {"resnet50=synthetic"}, "digits resnet50=synthetic ");
    expect_only(usual, "--on", {"host"}, "0");
    expect_only(usual, "--on", {"gpu"}, "1");
    expect_only(usual, "--on", {"gpu-resident"}, "2");
    expect_only(joined(usual, {"--on", "gpu-resident"}), "--resident-raw", {}, "1");
    expect_only(joined(usual, {"--on", "gpu"}), "--streams", {"client"}, "client");
    expect_only(usual, "--streams", {"3"}, "3");
    expect_only(usual, "--graphs", {"off"}, "0");
    expect_only(usual, "--graphs", {"on"}, "1");
    expect_only(usual, "--max-wait", {"3ms"}, "3000000");
    expect_only(usual, "--synthetic-gflops", {"12.5"}, "12.500000");
    expect_only(usual, "--synthetic-pace", {"busy"}, "1");
    expect_only(usual, "--synthetic-pace", {"wait"}, "0");
    expect_only(usual, "--metrics", {"*:9100"}, "*:9100");
    expect_only(usual, "--control", {}, "1");
    expect_only(usual, "--json", {}, "1");
}

TEST(model_server_command_line, numbers_have_a_range_and_words_are_known) {
    struct range {
        std::string option;
        std::int64_t least, most;
    };
    for (const auto& [option, least, most] : std::initializer_list<range>{{"--gpu", 0, 255},
                                                                          {"--priority-streams", 0, 64},
                                                                          {"--contexts", 1, 64},
                                                                          {"--max-batch", 1, 1024},
                                                                          {"--warm-up", 0, 100'000}}) {
        for (const std::int64_t good : {least, most})
            expect_only(usual, option, {std::to_string(good)}, std::to_string(good));
        for (const std::int64_t wrong : {least - 1, most + 1})
            EXPECT_THAT(refused(joined(usual, {option + '=' + std::to_string(wrong)})), HasSubstr(option));
    }
    for (const auto& [said, wanted] : std::initializer_list<std::pair<words, const char*>>{
             {{"--model", "digits"}, "URI"},
             {{"tcp://a:1"}, "--model"},
             {joined(usual, {"--on", "tpu"}), "--on"},
             {joined(usual, {"--graphs", "maybe"}), "--graphs"},
             {joined(usual, {"--synthetic-pace", "slow"}), "--synthetic-pace"},
             {joined(usual, {"--synthetic-gflops", "0.0009"}), "--synthetic-gflops"},
             {joined(usual, {"--synthetic-gflops", "1.1e9"}), "--synthetic-gflops"},
             {joined(usual, {"--metrics", "nowhere"}), "--metrics"},
             {joined(usual, {"--max-wait", "2"}),
              "'2' is not a valid duration: expected a duration such as 20us, 500ms or 2s"},
             {joined(usual, {"--streams", "257"}), "'257' is not a valid value: expected a number from 1 to 256"},
             {joined(usual, {"--contexts", "2", "--control"}), "--control needs a single process"}})
        EXPECT_THAT(refused(said), HasSubstr(wanted));
}

settings some_settings(std::mt19937& random) {
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
    settings out;
    out.uris = {"tcp://a:" + std::to_string(1 + below(9)), "shm://b"};
    out.models = {"digits", "resnet50=synthetic"};
    out.on = static_cast<execution>(below(3));
    if (out.on == execution::gpu_resident) {
        out.uris.pop_back();
        out.models.pop_back();
    }
    out.resident_raw = out.on == execution::gpu_resident && below(2) == 0;
    out.gpu = static_cast<std::int16_t>(below(256));
    out.graphs = below(2) == 0;
    out.streams = out.on == execution::gpu && below(2) == 0 ? stream_choice{0, true} : stream_choice{below(257), false};
    out.priority_streams = below(65);
    out.max_batch = out.on == execution::host ? 1 + below(1024) : 1;
    out.max_wait = std::chrono::microseconds{1 + below(5000)};
    out.warm_up = out.on == execution::gpu_resident ? 0 : below(100);
    out.synthetic = {0.25 * (1 + below(1000)), static_cast<synthetic_pace>(below(2))};
    if (below(2) == 0) out.metrics = "*:9100";
    out.json = true;  // of every process
    return out;
}

TEST(contexts, each_process_is_told_all_that_its_parent_was) {
    std::mt19937 random(1);
    for (int i = 0; i < 200; ++i) {
        const settings chosen = some_settings(random);
        ASSERT_EQ(contradiction_in(chosen), "");
        settings own = chosen;
        own.uris[0] = uri_of_context(chosen.uris[0], 3, 1).value();
        if (own.uris.size() > 1) own.uris[1] = "shm://b-3";
        if (!own.metrics.empty()) own.metrics = "*:9103";
        ASSERT_EQ(values_of(read(arguments_of_context(chosen, 3).value())), values_of(own));
    }
    settings chosen;
    chosen.uris = {"tcp://a:1"};
    chosen.models = {"digits"};
    chosen.max_wait = 999ns;
    EXPECT_EQ(read(arguments_of_context(chosen, 0).value()).max_wait, 1us) << "the shortest that can be said";
    chosen.metrics = "*:65535";
    EXPECT_EQ(arguments_of_context(chosen, 1).code(), status::invalid_argument);
    chosen.uris = {"tcp://a:65535"};
    EXPECT_THAT(arguments_of_context(chosen, 1).error().message,
                HasSubstr("'tcp://a:65535' with --contexts needs port 65536: choose a lower port, or 0"));
}

TEST(contexts, ports_and_names_follow_the_number_of_the_process) {
    for (const auto& [uri, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
             {"tcp://h:65533?a=b:1", "tcp://h:65535?a=b:1"},
             {"tcp://h:1x", "tcp://h:1x"},
             {"tcp://h:", "tcp://h:"},
             {"tcp://h:99999999999999999999", "tcp://h:99999999999999999999"},
             {"shm://name", "shm://name-1"},
             {"name", "name-1"}})
        EXPECT_EQ(uri_of_context(uri, 1, 2).value(), wanted);
    EXPECT_EQ(port_stride({"tcp://h:1", "zmqs://h"}), 1U);
}

/// What is printed.
template <typename Print>
std::string printed(Print print) {
    ::testing::internal::CaptureStdout();
    print();
    return ::testing::internal::GetCapturedStdout();
}

summary some_summary(std::uint64_t from) {
    summary out;
    out.requests = from;
    out.errors = from + 1;
    out.cpu_user = from * 250ms;
    out.cpu_kernel = from * 250ms + 500ms;
    out.rss_mib = static_cast<double>(from) + 4.5;
    out.models.push_back(
        {"digits", {from + 5, from + 6, {from + 7, from + 8, 0, 0}, {from + 9, from + 10, from + 11}}});
    out.models.push_back({"model " + std::to_string(from), {from + 12, from + 13, {}, {}}});
    return out;
}

/// All of it.
std::string text_of(const summary& of) {
    std::string out;
    for (const std::uint64_t each : {of.requests, of.errors, static_cast<std::uint64_t>(of.cpu_user / 1us),
                                     static_cast<std::uint64_t>(of.cpu_kernel / 1us)})
        out += std::to_string(each) + ' ';
    out += std::to_string(of.rss_mib);
    for (const auto& [name, seen] : of.models) {
        out += ' ' + name;
        for (const std::uint64_t each :
             {seen.requests, seen.errors, seen.batches.batches, seen.batches.requests, seen.batches.refused,
              seen.batches.given_up, seen.replays.replays, seen.replays.copies, seen.replays.copied_bytes})
            out += ' ' + std::to_string(each);
    }
    return out;
}

TEST(model_server_output, lines_of_json_are_read_as_they_were_printed) {
    const summary seen = some_summary(100);
    const auto read = read_summary(printed([&] { print_summary(true, seen); }));
    ASSERT_TRUE(read);
    EXPECT_EQ(text_of(*read), text_of(seen));
    const auto ready = read_ready(printed([] { print_ready(true, {"a", "b"}, {"m", "n"}); }));
    ASSERT_TRUE(ready);
    EXPECT_EQ(list(ready->endpoints) + list(ready->models), "a b m n ");
    for (const char* other : {"", "no json", "[]", "7", R"({"ready": true})", R"({"endpoints": []})",
                              R"({"models": []})", R"({"requests": 1})", R"({"endpoints": [], "requests": 1})"}) {
        EXPECT_FALSE(read_ready(other)) << other;
        EXPECT_FALSE(read_summary(other)) << other;
    }
}

TEST(model_server_output, people_read_a_line_for_each_endpoint_and_a_table) {
    EXPECT_EQ(printed([] {
                  print_ready(false, {"tcp://a:1", "shm://b"}, {"m", "n"});
              }),
              "serving m, n at tcp://a:1\nserving m, n at shm://b\n");
    const std::string page = printed([] { print_summary(false, some_summary(100)); });
    EXPECT_THAT(page, HasSubstr("100 requests, 101 errors; CPU 25.00 s user, 25.50 s kernel; 104 MiB\n"));
    const auto cells_of = [&](const std::string& model) {
        const std::size_t at = page.find('\n' + model);
        std::string out;
        for (const char each : page.substr(at + 1, page.find('\n', at + 1) - at - 1))
            if (each != ' ' || (!out.empty() && out.back() != ' ')) out += each;
        return out;
    };
    EXPECT_EQ(cells_of("digits"), "digits 105 106 107 1.0 109 110") << page;
    EXPECT_EQ(cells_of("model 100"), "model 100 112 113 0 - 0 0") << page;
}

TEST(model_server_output, summaries_of_contexts_are_added_up) {
    summary sum = some_summary(100);
    add_to(sum, some_summary(2000));
    EXPECT_EQ(text_of(sum),
              "2100 2102 525000000 526000000 2109.000000 digits 2110 2112 2114 2116 0 0 2118 2120 2122"
              " model 100 112 113 0 0 0 0 0 0 0 model 2000 2012 2013 0 0 0 0 0 0 0");
    served_statistics row{1, 2, {3, 4, 5, 6}, {7, 8, 9}};
    add(row, {10, 20, {30, 40, 50, 60}, {70, 80, 90}});
    summary one;
    one.models = {{"m", row}};
    EXPECT_EQ(text_of(one), "0 0 0 0 0.000000 m 11 22 33 44 55 66 77 88 99");
}

}  // namespace
}  // namespace accel::tests
