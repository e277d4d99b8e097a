// SPDX-License-Identifier: Apache-2.0
// What the gateway's command line sets, and what it refuses.
#include "serving/gateway/command_line.hpp"

#include "error_output.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace gateway = examples::gateway;
using words = std::vector<std::string>;
using values = std::map<std::string, std::string>;

const words ends{"--listen", "tcp://a:1", "--to", "m=tcp://b:2"};
const words doors{"--model", "m=tcp://a:1"};
const words sticky{"--balance", "sticky"};

std::optional<int> parse(words said, gateway::command& out) {
    said.insert(said.begin(), "gateway");
    std::vector<char*> pointers;
    for (std::string& each : said) pointers.push_back(each.data());
    return gateway::read_command_line(static_cast<int>(pointers.size()), pointers.data(), out);
}

gateway::command read(const words& said) {
    gateway::command out;
    EXPECT_EQ(parse(said, out), std::nullopt) << ::testing::PrintToString(said);
    return out;
}

/// The sentence.
std::string refused(const words& said) {
    const error_output output;
    gateway::command out;
    EXPECT_GT(parse(said, out).value_or(0), 0) << ::testing::PrintToString(said);
    return output.text();
}

words joined(words first, const words& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
}

std::string text(std::uint64_t value) {
    return std::to_string(value);
}
std::string text(std::chrono::nanoseconds value) {
    return std::to_string(value.count());
}
template <typename Place>
std::string places(const std::vector<Place>& all, std::string Place::*name) {
    std::string out;
    for (const Place& each : all) out += each.*name + '=' + each.uri + ' ';
    return out;
}

/// All that was chosen, by its option.
values values_of(const gateway::command& of) {
    const auto& chosen = of.doors;
    const auto& limits = chosen.limits;
    const auto& reach = of.opens_doors ? chosen.reach : of.passing.reach;
    std::string listen;
    for (const std::string& each : of.passing.listen) listen += each + ' ';
    std::string passed;
    for (const std::string& each : limits.passed_headers) passed += each + ' ';
    return {{"--listen", listen},
            {"--to", places(of.passing.to, &gateway::destination::model)},
            {"--queue", text(of.passing.queue)},
            {"--spin", text(of.passing.spin)},
            {"--balance", text(static_cast<std::uint64_t>(reach.balance))},
            {"--key", text(static_cast<std::uint64_t>(reach.key)) + reach.key_name},
            {"--channels", text(reach.channels)},
            {"--slots", text(reach.slots)},
            {"--patience", text(reach.patience)},
            {"--hold", text(reach.hold)},
            {"--dns-refresh", text(reach.dns_refresh)},
            {"--metrics", of.opens_doors ? chosen.metrics : of.passing.metrics},
            {"--json", text(of.opens_doors ? chosen.json : of.passing.json)},
            {"--http", chosen.http},
            {"--grpc", chosen.grpc},
            {"--model", places(chosen.models, &examples::serving::doors::model_place::name)},
            {"--tls-certificate", chosen.certificate},
            {"--tls-key", chosen.key},
            {"--tokens", chosen.tokens},
            {"--shared-memory", text(chosen.regions.system + 2U * chosen.regions.cuda)},
            {"--insecure", text(chosen.insecure)},
            {"--pass-header", passed},
            {"--max-connections", text(limits.max_connections)},
            {"--address-connections", text(limits.max_address_connections)},
            {"--max-calls", text(limits.max_calls)},
            {"--model-requests", text(limits.max_model_requests)},
            {"--body-rate", text(limits.body_rate)},
            {"--stream-parts", text(limits.stream_parts)},
            {"--stream-requests", text(limits.stream_requests)},
            {"--idle-timeout", text(limits.idle_timeout)},
            {"--handshake-timeout", text(limits.handshake_timeout)},
            {"--head-timeout", text(limits.head_timeout)},
            {"--body-timeout", text(limits.body_timeout)},
            {"--body-grace", text(limits.body_grace)},
            {"--write-timeout", text(limits.write_timeout)},
            {"--part-timeout", text(limits.part_timeout)},
            {"--stream-timeout", text(limits.stream_timeout)},
            {"--slot-timeout", text(limits.slot_timeout)},
            {"--ping-interval", text(limits.ping_interval)},
            {"--keepalive-time", text(limits.keepalive_time)},
            {"--keepalive-timeout", text(limits.keepalive_timeout)},
            {"--drain-delay", text(limits.drain_delay)},
            {"--drain-timeout", text(limits.drain_timeout)}};
}

/// This option sets this value, and all others are as they were.
void expect_only(const words& beside, const std::string& option, const words& given, const std::string& held) {
    values wanted = values_of(read(beside));
    wanted.at(option) = held;
    EXPECT_EQ(values_of(read(joined(joined(beside, {option}), given))), wanted) << option;
}

struct range {
    const char* option;
    std::int64_t least, most;
};

void expect_range(const words& beside, const range& of) {
    const std::string option = of.option;
    for (const std::int64_t good : {of.least, of.most})
        expect_only(beside, option, {std::to_string(good)}, std::to_string(good));
    for (const std::int64_t wrong : {of.least - 1, of.most + 1}) {
        const std::string said = refused(joined(beside, {option + '=' + std::to_string(wrong)}));
        EXPECT_NE(said.find(option), std::string::npos) << said;
    }
}

void expect_duration(const words& beside, const std::string& option) {
    expect_only(beside, option, {"350ms"}, "350000000");
    expect_only(beside, option, {"7s"}, "7000000000");
    const std::string said = refused(joined(beside, {option, "7"}));
    EXPECT_NE(said.find(option + ": '7' is not a valid duration"), std::string::npos) << said;
}

TEST(gateway_command_line, each_option_of_both_kinds_sets_its_own_value) {
    for (const words& beside : {ends, doors}) {
        expect_range(beside, {"--channels", 1, 64});
        expect_range(beside, {"--slots", 1, 4096});
        expect_duration(beside, "--patience");
        expect_duration(beside, "--hold");
        expect_duration(beside, "--dns-refresh");
        for (const auto& [name, held] : {std::pair{"round-robin", "0"}, {"least-loaded", "1"}, {"sticky", "2"}})
            expect_only(beside, "--balance", {name}, held);
        expect_only(joined(beside, sticky), "--key", {"session"}, "0");
        for (const char* wrong : {"metadata", "metadata:", "metadata:a b", "session:a"})
            EXPECT_NE(refused(joined(beside, {"--key", wrong})).find("is not a valid key"), std::string::npos) << wrong;
        expect_only(beside, "--metrics", {"*:9100"}, "*:9100");
        expect_only(beside, "--json", {}, "1");
        for (const char* option : {"--balance", "--key", "--metrics"})
            EXPECT_NE(refused(joined(beside, {option, "nothing"})).find(option), std::string::npos) << option;
    }
    expect_only(joined(ends, sticky), "--key", {"trace"}, "1");
    for (const char* key : {"metadata:user-id", "metadata:User-Id"}) {
        expect_only(joined(ends, sticky), "--key", {key}, "2user-id");
        expect_only(joined(joined(doors, sticky), {"--pass-header", "User-Id"}), "--key", {key}, "2user-id");
    }
    EXPECT_EQ(values_of(read(ends)).at("--channels"), "2");
    EXPECT_EQ(values_of(read(doors)).at("--channels"), "1");
}

TEST(gateway_command_line, each_option_of_transports_sets_its_own_value) {
    const words to{"--to", "m=tcp://b:2"};
    EXPECT_EQ(values_of(read(ends)).at("--listen"), "tcp://a:1 ");
    EXPECT_EQ(values_of(read(ends)).at("--to"), "m=tcp://b:2 ");
    EXPECT_FALSE(read(ends).opens_doors);
    expect_only(ends, "--to", {"tcp://c:3?x=y"}, "m=tcp://b:2 =tcp://c:3?x=y ");
    expect_only(ends, "--listen", {"shm://d"}, "tcp://a:1 shm://d ");
    expect_range(ends, {"--queue", 0, 65'536});
    expect_duration(ends, "--spin");
    for (const char* wrong : {"tcp", "://a", "=tcp://a", "m=://a", "a b=tcp://a"})
        EXPECT_NE(refused(joined(ends, {"--to", wrong})).find("is neither URI nor MODEL=URI"), std::string::npos)
            << wrong;
}

TEST(gateway_command_line, each_option_of_doors_sets_its_own_value) {
    EXPECT_TRUE(read(doors).opens_doors);
    EXPECT_EQ(values_of(read(doors)).at("--http"), "127.0.0.1:8000");
    EXPECT_EQ(values_of(read(joined(doors, {"--grpc", "a:1"}))).at("--http"), "") << "no door but the named one";
    const words http = joined(doors, {"--http", "a:1"});
    EXPECT_EQ(values_of(read(http)).at("--http"), "a:1");
    expect_only(http, "--grpc", {"[::1]:8001"}, "[::1]:8001");
    expect_only(http, "--model", {"n=shm://a?b=c"}, "m=tcp://a:1 n=shm://a?b=c ");
    expect_only(http, "--tokens", {"file"}, "file");
    expect_only(http, "--insecure", {}, "1");
    expect_only(http, "--pass-header", {"X-Tenant"}, "x-tenant ");
    expect_only(http, "--pass-header", {"a-bin", "--pass-header", "B", "--pass-header", "b"}, "a-bin b ");
    for (const auto& [kinds, held] : {std::pair{"system", "1"}, {"cuda", "2"}, {"system,cuda", "3"}})
        expect_only(http, "--shared-memory", {kinds}, held);
    const auto tls = values_of(read(joined(http, {"--tls-key", "k", "--tls-certificate", "c"})));
    EXPECT_EQ(tls.at("--tls-key") + tls.at("--tls-certificate"), "kc");
    for (const range& each : std::initializer_list<range>{{"--max-connections", 1, 100'000},
                                                          {"--address-connections", 1, 100'000},
                                                          {"--max-calls", 1, 100'000},
                                                          {"--model-requests", 1, 1'000'000},
                                                          {"--body-rate", 0, 1 << 30},
                                                          {"--stream-parts", 1, 16},
                                                          {"--stream-requests", 1, 1024}})
        expect_range(http, each);
    for (const char* each :
         {"--idle-timeout", "--handshake-timeout", "--head-timeout", "--body-timeout", "--body-grace",
          "--write-timeout", "--part-timeout", "--stream-timeout", "--slot-timeout", "--ping-interval",
          "--keepalive-time", "--keepalive-timeout", "--drain-delay", "--drain-timeout"})
        expect_duration(http, each);
}

TEST(gateway_command_line, options_that_do_not_go_together_are_refused) {
    for (const auto& [said, wanted] : std::initializer_list<std::pair<words, const char*>>{
             {{}, "there is nothing to do: give --listen and --to, or --model"},
             {{"--json"}, "there is nothing to do: give --listen and --to, or --model"},
             {{"--listen", "tcp://a:1"}, "--listen and --to must be given together"},
             {{"--to", "tcp://a:1"}, "--listen and --to must be given together"},
             {joined(ends, doors), "--listen and --to exclude doors: start a separate gateway for each"},
             {joined(ends, {"--http", "a:1"}), "--listen and --to exclude doors"},
             {joined(ends, {"--grpc", "a:1"}), "--listen and --to exclude doors"},
             {joined(ends, {"--config", "none"}), "--listen and --to exclude doors"},
             {{"--to", "tcp://a:1", "--model", "m=tcp://a:1"}, "--listen and --to exclude doors"},
             {{"--http", "a:1"}, "no model is given: give --model NAME=URI, or 'models' in --config FILE"},
             {{"--grpc", "a:1"}, "no model is given"},
             {{"--config", "/no/such.json"}, "/no/such.json: cannot be read"},
             {{"--model", "m"}, "'m' is not valid: expected NAME=URI"},
             {{"--model", "=tcp://a:1"}, "'=tcp://a:1' is not valid"},
             {{"--model", "m="}, "'m=' is not valid"},
             {joined(doors, {"--tls-key", "k"}), "--tls-certificate"},
             {joined(doors, {"--tls-certificate", "c"}), "--tls-key"},
             {joined(doors, {"--shared-memory", "gpu"}), "--shared-memory"},
             {joined(doors, {"--pass-header", "a b"}), "'a b' is not a valid name of a header to pass"},
             {joined(doors, {"--pass-header", "Authorization"}), "'authorization' cannot be passed"},
             {joined(joined(doors, sticky), {"--key", "metadata:a"}), "--key metadata:a needs --pass-header a"},
             {joined(joined(doors, sticky), {"--key", "trace"}), "--key trace is not for --model"},
             {joined(ends, {"--key", "session"}), "--key needs --balance sticky"},
             {joined(doors, {"--key", "session", "--balance", "least-loaded"}), "--key needs --balance sticky"},
             {joined(ends, {"--dns-refresh", "0s"}),
              "--dns-refresh: '0s' is not a valid duration: expected more than 0"},
             {joined(doors, {"--dns-refresh", "2562047h"}), "--dns-refresh: '2562047h' is not a valid duration"},
             {joined(doors, {"--http", "nowhere"}), "--http"},
             {joined(doors, {"--grpc", "nowhere"}), "--grpc"}}) {
        const std::string seen = refused(said);
        EXPECT_NE(seen.find(wanted), std::string::npos) << seen << " instead of " << wanted;
    }
}

TEST(gateway_command_line, options_win_over_the_file_and_its_other_values_stay) {
    const std::string path = (std::filesystem::temp_directory_path() / "accel_command_line.json").string();
    std::ofstream(path) << R"({"http": "a:1", "grpc": "a:2", "metrics": "a:3", "tokens": "/file", "insecure": true,
        "limits": {"connections": 7, "idle_timeout": "1s", "json_bytes": 2000},
        "models": {"m": "tcp://file:1", "n": "tcp://file:2"}})";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    const gateway::command alone = read({"--config", path});
    EXPECT_EQ(values_of(alone).at("--model"), "m=tcp://file:1 n=tcp://file:2 ");
    EXPECT_EQ(alone.doors.limits.max_json_bytes, 2000U);
    expect_only({"--config", path}, "--max-connections", {"9"}, "9");
    expect_only({"--config", path}, "--http", {"b:9"}, "b:9");
    expect_only({"--config", path}, "--model", {"m=tcp://here:1"}, "m=tcp://here:1 n=tcp://file:2 ");
    expect_only({"--config", path}, "--json", {}, "1");
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace accel::tests
