// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/config_file.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

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
        "metrics": "127.0.0.1:8002", "insecure": true, "tokens": "/run/tokens",
        "tls": {"certificate": "door.pem", "key": "keys/door.key"},
        "limits": {"connections": 7, "address_connections": 5, "json_bytes": 4096, "json_memory": 8192,
                   "regions": 8, "region_bytes": 9, "ping_interval": "10s", "keepalive_time": "11s",
                   "keepalive_timeout": "12s",
                   "stream_parts": 3, "stream_requests": 5, "part_timeout": "7s", "stream_timeout": "8s",
                   "idle_timeout": "1s",
                   "handshake_timeout": "2s", "head_timeout": "3s", "body_timeout": "4s", "slot_timeout": "5s",
                   "model_requests": 64, "body_rate": 1000, "body_grace": "500ms",
                   "write_timeout": "6s", "drain_delay": "900ms", "drain_timeout": "700ms"},
        "models": {"digits": "tcp://a:1", "mine": {"uri": ["gdr://b:2", "gdr://c:3"], "target": "other",
            "decoupled": true, "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [1]}]}}})",
                                         "etc/door.json", got);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(got.http, "0.0.0.0:8000");
    EXPECT_EQ(got.grpc, "[::1]:8001");
    EXPECT_TRUE(got.regions.system && got.regions.cuda);
    EXPECT_EQ(got.regions.max_regions, 8U);
    EXPECT_EQ(got.regions.max_bytes, 9U);
    EXPECT_EQ(got.metrics, "127.0.0.1:8002");
    EXPECT_TRUE(got.insecure);
    EXPECT_EQ(got.tokens, "/run/tokens");
    EXPECT_EQ(got.certificate, "etc/door.pem");
    EXPECT_EQ(got.key, "etc/keys/door.key");
    EXPECT_EQ(got.limits.max_connections, 7U);
    EXPECT_EQ(got.limits.ping_interval, std::chrono::seconds{10});
    EXPECT_EQ(got.limits.keepalive_time, std::chrono::seconds{11});
    EXPECT_EQ(got.limits.keepalive_timeout, std::chrono::seconds{12});
    EXPECT_EQ(most_of_an_address(got.limits), 5U);
    EXPECT_EQ(most_of_an_address({.max_connections = 7}), 3U);
    EXPECT_EQ(most_of_an_address({.max_connections = 1}), 1U);
    EXPECT_EQ(got.limits.max_json_bytes, 4096U);
    EXPECT_EQ(got.limits.max_model_requests, 64U);
    EXPECT_EQ(got.limits.body_rate, 1000U);
    EXPECT_EQ(got.limits.body_grace, std::chrono::milliseconds{500});
    EXPECT_EQ(got.limits.max_json_memory, 8192U);
    const auto& at = got.limits;
    EXPECT_EQ(at.stream_parts, 3U);
    EXPECT_EQ(at.stream_requests, 5U);
    const std::chrono::milliseconds all[] = {at.idle_timeout, at.handshake_timeout, at.head_timeout, at.body_timeout,
                                             at.slot_timeout, at.write_timeout,     at.part_timeout, at.stream_timeout};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(all[i], std::chrono::seconds{i + 1}) << i;
    EXPECT_EQ(at.drain_delay, std::chrono::milliseconds{900});
    EXPECT_EQ(at.drain_timeout, std::chrono::milliseconds{700});
    ASSERT_EQ(got.models.size(), 3U);
    EXPECT_EQ(got.models[0].name + got.models[0].uri, "digitstcp://a:1");
    EXPECT_EQ(got.models[1].name + got.models[1].uri, "minegdr://b:2");
    EXPECT_EQ(got.models[2].name + got.models[2].uri, "minegdr://c:3");
    ASSERT_EQ(got.described.size(), 1U);
    EXPECT_EQ(got.described[0].target, "other");
    EXPECT_TRUE(got.described[0].decoupled);
    EXPECT_EQ(got.described[0].input_bytes, 24U);
}

TEST(door_configuration, options_missing_from_the_file_keep_their_values) {
    choices got;
    ASSERT_TRUE(read_configuration("{}", "f", got));
    EXPECT_EQ(got.http, choices{}.http);
    EXPECT_EQ(got.limits.idle_timeout, door_settings{}.idle_timeout);
}

TEST(door_configuration, an_unknown_key_is_refused_with_the_nearest_known_one) {
    EXPECT_EQ(refused(R"({"htp": "a:1"})"), "etc/door.json: htp: this key is unknown; the nearest known key is 'http'");
    EXPECT_EQ(refused(R"({"limits": {"idle-timeout": "1s"}})"),
              "etc/door.json: limits.idle-timeout: this key is unknown; the nearest known key is 'idle_timeout'");
    EXPECT_EQ(refused(R"({"tls": {"cert": "a"}})"),
              "etc/door.json: tls.cert: this key is unknown; the nearest known key is 'key'");
    EXPECT_EQ(refused(R"({"models": {"m": {"url": "tcp://a:1"}}})"),
              "etc/door.json: models.m.url: this key is unknown; the nearest known key is 'uri'");
    EXPECT_EQ(refused(R"({"models": {"m": {"inputs": [{"dtype": "FP32"}]}}})"),
              "etc/door.json: models.m.inputs.dtype: this key is unknown; the nearest known key is 'datatype'");
}

TEST(door_configuration, an_error_for_a_wrong_value_says_what_is_expected) {
    for (const auto& [text, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
             {R"({"http": 8000})", "http: write HOST:PORT, in quotes"},
             {R"({"grpc": ""})", "grpc: write HOST:PORT, in quotes"},
             {R"({"metrics": "nowhere"})", "metrics: "},
             {R"({"insecure": "yes"})", "insecure: write true or false"},
             {R"({"shared_memory": true})", "shared_memory: write \"system\", \"cuda\" or \"system,cuda\""},
             {R"({"shared_memory": "gpu"})", "shared_memory: "},
             {R"({"limits": {"regions": 0}})", "limits.regions: write a whole number from 1 to 1024"},
             {R"({"tokens": ["a"]})", "tokens: write the path of a file, in quotes"},
             {R"({"tls": {"certificate": "a"}})", "tls: TLS needs both a 'certificate' and a 'key'"},
             {R"({"limits": {"connections": 0}})", "limits.connections: write a whole number from 1 to 100000"},
             {R"({"limits": {"connections": -1}})", "limits.connections: write a whole number from 1 to 100000"},
             {R"({"limits": {"connections": 1e300}})", "limits.connections: write a whole number"},
             {R"({"limits": {"body_timeout": 5}})", "limits.body_timeout: write a duration in quotes"},
             {R"({"limits": {"body_timeout": "5"}})", "limits.body_timeout: write a duration in quotes"},
             {R"({"limits": []})", "limits: write an object"},
             {R"({"models": ["a=b"]})", "models: write an object: {\"NAME\": \"URI\", …}"},
             {R"({"models": {"m": 1}})", "models.m: write the URI of the model's server, in quotes, or a list of them"},
             {R"({"models": {"m": []}})", "models.m: write the URI of the model's server, in quotes, or a list"},
             {R"({"models": {"m": ["a", 1]}})", "models.m: write the URI of the model's server, in quotes, or a"},
             {R"({"models": {"m": {"target": "a"}}})", "models.m.uri: write the URI of the model's server"},
             {R"({"models": {"m": {"uri": "a", "inputs": {}}}})", "models.m.inputs: write a list of tensors"},
             {R"({"models": {"m": {"uri": "a", "inputs": []}}})", "models.m: the description has no list of outputs"},
             {R"({"models": {"m": {"uri": "a", "target": 7}}})", "models.m: the target is not a string"},
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
