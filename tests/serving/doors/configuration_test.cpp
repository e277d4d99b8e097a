// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/config_file.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using std::chrono::milliseconds;

std::string refused(std::string_view text) {
    choices into;
    const auto read = read_configuration(text, "etc/door.json", into);
    return read ? "taken" : read.error().message;
}

TEST(door_configuration, each_key_sets_its_own_option) {
    choices got;
    const auto read = read_configuration(R"({
        // A comment.
        "http": "0.0.0.0:8000", "grpc": "[::1]:8001", "shared_memory": "system,cuda",
        "metrics": "127.0.0.1:8002", "insecure": true, "tokens": "/run/tokens", "pass_headers": ["X-A", "b-bin"],
        "tls": {"certificate": "door.pem", "key": "keys/door.key"},
        "models": {"digits": "tcp://a:1", "mine": {"uri": ["gdr://b:2", "gdr://c:3"], "target": "other",
            "decoupled": true, "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}}})",
                                         "etc/door.json", got);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(got.http + ' ' + got.grpc + ' ' + got.metrics, "0.0.0.0:8000 [::1]:8001 127.0.0.1:8002");
    EXPECT_TRUE(got.regions.system && got.regions.cuda && got.insecure);
    EXPECT_EQ(got.limits.passed_headers, (std::vector<std::string>{"x-a", "b-bin"}));
    EXPECT_EQ(got.tokens + ' ' + got.certificate + ' ' + got.key, "/run/tokens etc/door.pem etc/keys/door.key");
    std::string models;
    for (const model_place& each : got.models) models += each.name + '=' + each.uri + ' ';
    EXPECT_EQ(models, "digits=tcp://a:1 mine=gdr://b:2 mine=gdr://c:3 ");
    ASSERT_EQ(got.described.size(), 1U);
    EXPECT_EQ(got.described[0].target, "other");
    EXPECT_TRUE(got.described[0].decoupled);
    EXPECT_EQ(got.described[0].input_bytes, 24U);
}

struct limit {
    const char* key;
    std::function<std::size_t&(choices&)> of;
    std::size_t least = 1;
    std::size_t most = 100'000;
};

std::vector<limit> number_limits() {
    constexpr std::size_t gib = std::size_t{1} << 30;
    const auto of = [](std::size_t door_settings::*where) {
        return [where](choices& in) -> std::size_t& { return in.limits.*where; };
    };
    return {{"connections", of(&door_settings::max_connections)},
            {"address_connections", of(&door_settings::max_address_connections)},
            {"calls", of(&door_settings::max_calls)},
            {"model_requests", of(&door_settings::max_model_requests), 1, 1'000'000},
            {"body_rate", of(&door_settings::body_rate), 0, gib},
            {"grpc_memory", of(&door_settings::max_grpc_memory), 1 << 20, 64 * gib},
            {"stream_parts", of(&door_settings::stream_parts), 1, max_parts},
            {"stream_requests", of(&door_settings::stream_requests), 1, 1024},
            {"json_bytes", of(&door_settings::max_json_bytes), 1024, gib},
            {"json_memory", of(&door_settings::max_json_memory), 1024, 64 * gib},
            {"regions", [](choices& in) -> std::size_t& { return in.regions.max_regions; }, 1, 1024},
            {"region_bytes", [](choices& in) -> std::size_t& { return in.regions.max_bytes; }, 1, 1024 * gib}};
}

const std::pair<const char*, milliseconds door_settings::*> duration_limits[] = {
    {"idle_timeout", &door_settings::idle_timeout},     {"handshake_timeout", &door_settings::handshake_timeout},
    {"head_timeout", &door_settings::head_timeout},     {"body_timeout", &door_settings::body_timeout},
    {"body_grace", &door_settings::body_grace},         {"slot_timeout", &door_settings::slot_timeout},
    {"write_timeout", &door_settings::write_timeout},   {"part_timeout", &door_settings::part_timeout},
    {"stream_timeout", &door_settings::stream_timeout}, {"ping_interval", &door_settings::ping_interval},
    {"keepalive_time", &door_settings::keepalive_time}, {"keepalive_timeout", &door_settings::keepalive_timeout},
    {"drain_delay", &door_settings::drain_delay},       {"drain_timeout", &door_settings::drain_timeout},
};

/// All limits, as numbers.
std::vector<std::size_t> values_of(choices& from) {
    std::vector<std::size_t> out;
    for (const limit& each : number_limits()) out.push_back(each.of(from));
    for (const auto& [key, where] : duration_limits)
        out.push_back(static_cast<std::size_t>((from.limits.*where).count()));
    return out;
}

/// What becomes of the limits with this one: the limit at `place` is `wanted`, and the others are as they were.
void expect_only(std::size_t place, const char* key, const std::string& value, std::size_t wanted) {
    choices got;
    std::vector<std::size_t> all = values_of(got);
    all.at(place) = wanted;
    const auto read = read_configuration(std::string{R"({"limits": {")"} + key + R"(": )" + value + "}}", "f", got);
    EXPECT_TRUE(read) << key << ": " << read.error().message;
    EXPECT_EQ(values_of(got), all) << key << ": " << value;
}

void expect_refused(const char* key, const std::string& value, const std::string& wanted) {
    const std::string said = refused(std::string{R"({"limits": {")"} + key + R"(": )" + value + "}}");
    EXPECT_EQ(said, std::string{"etc/door.json: limits."} + key + ": " + wanted) << value;
}

TEST(door_configuration, each_limit_is_its_own_and_has_a_range) {
    std::size_t place = 0;
    for (const limit& each : number_limits()) {
        for (const std::size_t good : {each.least, each.most}) expect_only(place, each.key, std::to_string(good), good);
        ++place;
        const std::string range =
            "write a whole number from " + std::to_string(each.least) + " to " + std::to_string(each.most);
        for (const std::string& wrong :
             {std::to_string(each.most + 1), std::to_string(std::int64_t(each.least) - 1), std::string{"1.5"},
              std::string{"1e300"}, std::string{"\"7\""}, std::string{"true"}, std::string{"null"}})
            expect_refused(each.key, wrong, range);
    }
    for (const auto& [key, where] : duration_limits) {
        expect_only(place, key, "\"7s\"", 7000);
        expect_only(place++, key, "\"350ms\"", 350);
        for (const char* wrong : {"5", "\"5\"", "\"\"", "\"-1s\"", "true", "null"})
            expect_refused(key, wrong, "write a duration in quotes: \"500ms\" or \"10s\"");
    }
    EXPECT_EQ(most_of_an_address({.max_connections = 7, .max_address_connections = 5}), 5U);
    EXPECT_EQ(most_of_an_address({.max_connections = 7}), 3U);
    EXPECT_EQ(most_of_an_address({.max_connections = 1}), 1U);
}

TEST(door_configuration, an_unknown_key_is_refused_with_the_nearest_known_one) {
    EXPECT_EQ(refused(R"({"htp": "a:1"})"), "etc/door.json: htp: this key is unknown; the nearest known key is 'http'");
    EXPECT_EQ(refused(R"({"limits": {"idle-timeout": "1s"}})"),
              "etc/door.json: limits.idle-timeout: this key is unknown; the nearest known key is 'idle_timeout'");
    EXPECT_EQ(refused(R"({"tls": {"cert": "a"}})"),
              "etc/door.json: tls.cert: this key is unknown; the nearest known key is 'certificate'");
    EXPECT_EQ(refused(R"({"models": {"m": {"url": "tcp://a:1"}}})"),
              "etc/door.json: models.m.url: this key is unknown; the nearest known key is 'uri'");
    EXPECT_EQ(refused(R"({"models": {"m": {"inputs": [{"dtype": "FP32"}]}}})"),
              "etc/door.json: models.m.inputs[0].dtype: this key is unknown; the nearest known key is 'datatype'");
}

TEST(door_configuration, an_error_for_a_wrong_value_says_what_is_expected) {
    for (const auto& [text, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
             {R"({"http": 8000})", "http: write HOST:PORT, in quotes"},
             {R"({"grpc": ""})", "grpc: write HOST:PORT, in quotes"},
             {R"({"metrics": "nowhere"})", "metrics: "},
             {R"({"insecure": "yes"})", "insecure: write true or false"},
             {R"({"shared_memory": true})", "shared_memory: write \"system\", \"cuda\" or \"system,cuda\""},
             {R"({"shared_memory": "gpu"})", "shared_memory: "},
             {R"({"tokens": ["a"]})", "tokens: write the path of a file, in quotes"},
             {R"({"tokens": ""})", "tokens: write the path of a file, in quotes"},
             {R"({"tls": {"key": "a"}})", "tls: TLS needs both a 'certificate' and a 'key'"},
             {R"({"tls": {"certificate": "a"}})", "tls: TLS needs both a 'certificate' and a 'key'"},
             {R"({"limits": []})", "limits: write an object"},
             {R"({"models": ["a=b"]})", "models: write an object: {\"NAME\": \"URI\", …}"},
             {R"({"models": {"m": 1}})", "models.m: write the URI of the model's server, in quotes, or a list of them"},
             {R"({"models": {"m": []}})", "models.m: write the URI of the model's server, in quotes, or a list"},
             {R"({"models": {"m": ["a", 1]}})", "models.m: write the URI of the model's server, in quotes, or a"},
             {R"({"models": {"m": {"target": "a"}}})", "models.m.uri: write the URI of the model's server"},
             {R"({"models": {"m": {"uri": "a", "inputs": {}}}})", "models.m.inputs: write a list of tensors"},
             {R"({"models": {"m": {"uri": "a", "inputs": []}}})", "models.m: a model must have 1 to 64 inputs"},
             {R"({"models": {"m": {"uri": "a", "target": 7}}})",
              "models.m.target: write the model's name at its server"},
             {R"([])", "write an object"}})
        EXPECT_EQ(refused(text).rfind(std::string{"etc/door.json: "} + wanted, 0), 0U) << text << ": " << refused(text);
}

TEST(door_configuration, text_that_is_not_json_is_refused_with_its_line) {
    EXPECT_NE(refused("{\n\"http\" 1}").find("etc/door.json: parse error at line 2"), std::string::npos)
        << refused("{\n\"http\" 1}");
    EXPECT_EQ(refused(R"({"models": {"a": "x", "a": "y"}})"), "etc/door.json: a: this key occurs twice in one object");
    const std::string deep = std::string(100, '[') + std::string(100, ']');
    EXPECT_EQ(refused(deep), "etc/door.json: it is nested deeper than 16 levels");
    EXPECT_NE(refused("{} {}").find("parse error"), std::string::npos);
    EXPECT_EQ(refused(R"({"limits": {"connections": 1e999}})"), "etc/door.json: number overflow parsing '1e999'");
}

TEST(door_configuration, a_missing_or_too_long_file_is_named) {
    choices into;
    EXPECT_EQ(read_configuration_file("/nothing/here", into).error().message,
              "/nothing/here: cannot be read: No such file or directory");
    const std::string path = (std::filesystem::temp_directory_path() / "accel_long_configuration.json").string();
    std::ofstream(path) << std::string((std::size_t{1} << 20) + 1, ' ');
    EXPECT_EQ(read_configuration_file(path, into).error().message, path + ": is longer than 1 MiB");
    std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
    EXPECT_EQ(read_configuration_file(path, into).error().message,
              path + ": other users can change it: run chmod go-w on the file");
    std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::remove);
    std::ofstream(path) << R"({"insecure": true})";
    EXPECT_TRUE(read_configuration_file(path, into));
    EXPECT_TRUE(into.insecure);
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace accel::examples::serving::doors
