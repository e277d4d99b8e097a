// SPDX-License-Identifier: Apache-2.0
#include "core/slot_memory.hpp"
#include "core/uri.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

uri with(std::string query) {
    return parse_uri("tcp://h:1?" + query).value();
}

result<channel_options> client(std::string query, const channel_options& from = {}) {
    return apply_options(with(std::move(query)), from);
}
result<server_options> serving(std::string query, const server_options& from = {}) {
    return apply_options(std::vector<uri>{with(std::move(query))}, from);
}

TEST(options, verbs_have_keys_at_both_ends) {
    const std::string query = "device=mlx5_1:2&gid_index=3&mtu=2048&ack_timeout=16ms&ack_retries=5&direct=false";
    const auto expect_all = [](const verbs_options& o) {
        EXPECT_EQ(o.device, "mlx5_1:2");
        EXPECT_EQ(o.gid_index, 3);
        EXPECT_EQ(o.mtu, 2048U);
        EXPECT_EQ(o.ack_timeout, 16ms);
        EXPECT_EQ(o.ack_retries, 5U);
        EXPECT_FALSE(o.direct);
    };
    auto read = client(query);
    ASSERT_TRUE(read) << read.error().message;
    expect_all(read->verbs);
    auto served = serving(query);
    ASSERT_TRUE(served) << served.error().message;
    expect_all(served->verbs);
}

TEST(options, every_field_of_a_channel_has_a_key) {
    const auto read = client(
        "slots=3&request_bytes=64K&response_bytes=1M&connect_timeout=2s&connect_retry=1ms&call_timeout=500ms&"
        "quarantine_timeout=7s&close_"
        "timeout="
        "20us&"
        "peer_timeout=250ms&poll=block&spin=0ns&reconnect=true&backoff_min=1ms&backoff_max=1s&zerocopy=on&"
        "key_file=a&server_key=b&insecure=0");
    ASSERT_TRUE(read) << read.error().message;
    const channel_options& o = read.value();
    EXPECT_EQ(o.slots, 3U);
    EXPECT_EQ(o.request_bytes, 64U << 10);
    EXPECT_EQ(o.response_bytes, 1U << 20);
    EXPECT_EQ(o.connect_timeout, 2s);
    EXPECT_EQ(o.connect_retry, 1ms);
    EXPECT_EQ(o.call_timeout, 500ms);
    EXPECT_EQ(o.quarantine_timeout, 7s);
    EXPECT_EQ(o.close_timeout, 20us);
    EXPECT_EQ(o.peer_timeout, 250ms);
    EXPECT_EQ(o.poll, poll_mode::block);
    EXPECT_EQ(o.spin, 0ns);
    EXPECT_TRUE(o.reconnect);
    EXPECT_EQ(o.backoff_min, 1ms);
    EXPECT_EQ(o.backoff_max, 1s);
    EXPECT_TRUE(o.zerocopy);
    EXPECT_EQ(o.security.key_file, "a");
    EXPECT_EQ(o.security.server_key, "b");
    EXPECT_FALSE(o.security.insecure);
}

TEST(options, every_field_of_a_server_has_a_key) {
    const auto read = serving(
        "workers=0&max_sessions=7&max_slots=9&max_request_bytes=1K&max_response_bytes=2K&max_memory_bytes=1G&"
        "max_exchanges=5&memory=cuda:1&peer_timeout=1s&drain_timeout=3s&poll=adaptive&spin=10us&data_port="
        "4000&"
        "zerocopy=false&key_file=a&authorized_keys=b&insecure=off");
    ASSERT_TRUE(read) << read.error().message;
    const server_options& o = read.value();
    EXPECT_EQ(o.workers, 0U);
    EXPECT_EQ(o.max_sessions, 7U);
    EXPECT_EQ(o.max_slots, 9U);
    EXPECT_EQ(o.max_request_bytes, 1024U);
    EXPECT_EQ(o.max_response_bytes, 2048U);
    EXPECT_EQ(o.max_memory_bytes, 1U << 30);
    EXPECT_EQ(o.max_exchanges, 5U);
    EXPECT_EQ(o.memory, memory_kind::cuda(1));
    EXPECT_EQ(o.peer_timeout, 1s);
    EXPECT_EQ(o.drain_timeout, 3s);
    EXPECT_EQ(o.poll, poll_mode::adaptive);
    EXPECT_EQ(o.spin, 10us);
    EXPECT_EQ(o.data_port, 4000);
    EXPECT_FALSE(o.zerocopy);
    EXPECT_EQ(o.security.key_file, "a");
    EXPECT_EQ(o.security.authorized_keys, "b");
    EXPECT_FALSE(o.security.insecure);
}

TEST(options, options_missing_from_the_uri_keep_their_values) {
    channel_options from;
    from.slots = 77;
    from.call_timeout = 3s;
    const auto read = client("slots=5", from);
    ASSERT_TRUE(read);
    EXPECT_EQ(read.value().slots, 5U);
    EXPECT_EQ(read.value().call_timeout, 3s);
}

TEST(options, contradicting_options_are_refused) {
    for (const char* both : {"insecure=true&key_file=a", "insecure=true&ca_file=a", "insecure=true&encrypt=required"}) {
        EXPECT_EQ(client(both).code(), status::invalid_argument) << both;
        EXPECT_EQ(serving(both).code(), status::invalid_argument) << both;
    }
    EXPECT_EQ(client("server_name=a").value().security.server_name, "a");
    EXPECT_EQ(serving("server_name=a").code(), status::invalid_argument) << "of clients";
    EXPECT_EQ(client("insecure=true&server_key=a").code(), status::invalid_argument);
    EXPECT_EQ(client("cert_file=a&server_key=b").code(), status::invalid_argument);
    EXPECT_EQ(serving("ca_file=a&authorized_keys=b").code(), status::invalid_argument);
    EXPECT_EQ(serving("insecure=true&authorized_keys=a").code(), status::invalid_argument);
    EXPECT_EQ(serving("insecure=true&anonymous=true").code(), status::invalid_argument);
    EXPECT_TRUE(serving("anonymous=true&key_file=a"));
    EXPECT_EQ(client("backoff_min=2s&backoff_max=1s").code(), status::invalid_argument);
    EXPECT_EQ(serving("data_port=65535&workers=2").code(), status::invalid_argument);
    EXPECT_TRUE(serving("data_port=65534&workers=2"));
    EXPECT_TRUE(serving("data_port=65535&workers=0"));
}

TEST(options, an_error_for_a_malformed_value_says_what_is_expected) {
    const auto said = [](const char* query) { return client(query).error().message; };
    EXPECT_EQ(
        said("call_timeout=5"),
        "'5' is not a valid value for call_timeout: expected a duration such as 20us, 500ms or 2s; did you mean 5s?");
    EXPECT_EQ(said("request_bytes=64 KB"),
              "'64 KB' is not a valid value for request_bytes: expected a whole number of bytes such as 4096, 64KiB or "
              "1.5GiB; did you mean 64KiB?");
    EXPECT_EQ(said("reconnect=maybe"), "'maybe' is not a valid value for reconnect: expected true or false");
    EXPECT_EQ(said("slots=many"), "'many' is not a valid value for slots: expected a whole number");
    for (const char* port : {"65536", "abc", "", "+1", " 80", "80x"})
        EXPECT_EQ(serving("data_port=" + std::string(port)).error().message,
                  "'" + std::string(port) + "' is not a valid value for data_port: expected a port, 0 to 65535");
}

struct limits_of {
    const char* key;
    std::vector<const char*> good;
    std::vector<const char*> bad;
};

const std::vector<limits_of>& limits_of_both() {
    static const std::vector<const char*> truths{"true", "1", "on", "false", "0", "off"};
    static const std::vector<const char*> no_truths{"maybe", "", "yes", "True", "2"};
    static const std::vector<limits_of> all{
        {"peer_timeout", {"20ms", "2s"}, {"19999us", "0ms", "-1s", "20"}},
        {"poll", {"busy", "adaptive", "block"}, {"Busy", ""}},
        {"spin", {"0ns", "10us"}, {"-1ns", "1"}},
        {"pacing", {"0", "1Mb/s", "100Tb/s"}, {"999kb/s", "999999b/s", "101Tb/s", "5", "-1Mb/s"}},
        {"mtu", {"256", "512", "1024", "2048", "4096"}, {"1", "255", "1500", "8192"}},
        {"gid_index", {"-1", "0", "255"}, {"-2", "256", "x", ""}},
        {"ack_timeout", {"1ns"}, {"0ns"}},
        {"ack_retries", {"0", "6"}, {"7", "-1"}},
        {"direct", truths, no_truths},
        {"zerocopy", truths, no_truths},
        {"insecure", truths, no_truths},
    };
    return all;
}

const std::vector<limits_of>& limits_of_channels() {
    static const std::vector<limits_of> all{
        {"slots", {"1", "65536"}, {"0", "65537", "", "-1", "4294967296", "4294967297", "1.5", "8K", " 8"}},
        {"request_bytes",
         {"0", "1G", "1GiB", "0.5MiB", "1024M", "1073741824"},
         {"1073741825", "1025M", "1k", "99999999999999999999", "17179869184G", "64KB", "1.2GiB"}},
        {"response_bytes", {"1G"}, {"1073741825", "2G"}},
        {"connect_timeout", {"1ns"}, {"0s"}},
        {"call_timeout",
         {"1ns", "500ms", "5m", "1.5s"},
         {"0ms", "5", "5d", "ms", "9223372036854775808ns", "9999999999999s"}},
        {"close_timeout", {"1ns"}, {"0s"}},
        {"backoff_min", {"1ns"}, {"0s"}},
        {"connect_retry", {"0s"}, {"-1s"}},
        {"quarantine_timeout", {"0s"}, {"-1s"}},
        {"priority", {"normal", "high"}, {"low", ""}},
        {"reconnect", {"true", "off"}, {"maybe", ""}},
    };
    return all;
}

const std::vector<limits_of>& limits_of_servers() {
    static const std::vector<limits_of> all{
        {"workers", {"0", "256"}, {"257", "-1"}},
        {"max_sessions", {"1"}, {"0"}},
        {"max_slots", {"1", "65536"}, {"0", "65537"}},
        {"max_request_bytes", {"1G"}, {"1073741825", "1025M"}},
        {"max_response_bytes", {"1G"}, {"1073741825"}},
        {"max_exchanges", {"1"}, {"0"}},
        {"max_connections", {"1"}, {"0"}},
        {"max_handshakes", {"4"}, {"3", "0"}},
        {"max_memory_bytes", {"64GiB", "1.5T"}, {"16777216T", "-1"}},
        {"drain_timeout", {"0s"}, {"-1s"}},
        {"streams", {"1", "128"}, {"0", "129"}},
        {"priority_streams", {"1", "128"}, {"0", "129"}},
        {"data_port", {"0", "1", "65535"}, {"65536", "-1"}},
        {"memory", {"host", "cuda:0", "cuda:255"}, {"gpu", "cuda:", "cuda:-1", "cuda:256"}},
    };
    return all;
}

template <class Apply>
void expect_limits(const std::vector<limits_of>& all, Apply apply) {
    for (const limits_of& each : all) {
        for (const char* value : each.good) {
            const auto read = apply(each.key + std::string("=") + value);
            EXPECT_TRUE(read) << read.error().message;
        }
        for (const char* value : each.bad)
            EXPECT_EQ(apply(each.key + std::string("=") + value).code(), status::invalid_argument)
                << each.key << '=' << value;
    }
}

TEST(options, each_value_has_its_limits) {
    const auto at_client = [](const std::string& query) { return client(query); };
    const auto at_server = [](const std::string& query) { return serving(query); };
    expect_limits(limits_of_both(), at_client);
    expect_limits(limits_of_both(), at_server);
    expect_limits(limits_of_channels(), at_client);
    expect_limits(limits_of_servers(), at_server);
    // Code is checked like a URI.
    const auto client_with = [](auto change) {
        channel_options from;
        change(from);
        return client("", from).code();
    };
    const auto server_with = [](auto change) {
        server_options from;
        change(from);
        return serving("", from).code();
    };
    EXPECT_EQ(client_with([](channel_options&) {}), status::ok);
    EXPECT_EQ(client_with([](channel_options& o) { o.slots = 0; }), status::invalid_argument);
    EXPECT_EQ(client_with([](channel_options& o) { o.spin = -1ns; }), status::invalid_argument);
    EXPECT_EQ(client_with([](channel_options& o) { o.connect_retry = -1ns; }), status::invalid_argument);
    EXPECT_EQ(client_with([](channel_options& o) { o.quarantine_timeout = -1ns; }), status::invalid_argument);
    EXPECT_EQ(client_with([](channel_options& o) { o.interceptors.resize(1); }), status::invalid_argument);
    EXPECT_EQ(server_with([](server_options&) {}), status::ok);
    EXPECT_EQ(server_with([](server_options& o) { o.spin = -1ns; }), status::invalid_argument);
    EXPECT_EQ(server_with([](server_options& o) { o.drain_timeout = -1ns; }), status::invalid_argument);
    EXPECT_EQ(server_with([](server_options& o) { o.interceptors.resize(1); }), status::invalid_argument);
}

TEST(quantities, sizes_have_units_of_1024_and_may_have_decimals) {
    const std::pair<const char*, std::size_t> all[] = {
        {"0", 0},
        {"4096", 4096},
        {"64K", 65'536},
        {"64KiB", 65'536},
        {"1M", 1U << 20},
        {"1.5MiB", 3U << 19},
        {"1.50G", std::size_t{3} << 29},
        {"64GiB", std::size_t{64} << 30},
        {"2T", std::size_t{2} << 40},
        {"0.0009765625KiB", 1},
        {"17179869183G", std::size_t{17'179'869'183} << 30},
        {"18446744073709551615", std::numeric_limits<std::size_t>::max()},
    };
    for (const auto& [text, size] : all) EXPECT_EQ(parse_size(text).value(), size) << text;
    for (const char* text : {"",
                             "K",
                             "-1",
                             "+1",
                             " 1",
                             "1 ",
                             "1k",
                             "1KB",
                             "4Ki",
                             "4iB",
                             "4kiB",
                             "0x10",
                             "1.5",
                             "1.",
                             ".5K",
                             "1.2GiB",
                             "1e3K",
                             "1.-5K",
                             "4KiBs",
                             "1,5K",
                             "17179869184G",
                             "18446744073709551616",
                             "1.0000000000000000000K"})
        EXPECT_EQ(parse_size(text).code(), status::invalid_argument) << "'" << text << "'";
}

TEST(quantities, durations_have_units_and_may_have_decimals) {
    const std::pair<const char*, std::chrono::nanoseconds> all[] = {
        {"0s", 0ns},
        {"1ns", 1ns},
        {"20us", 20us},
        {"500ms", 500ms},
        {"1.5s", 1500ms},
        {"5m", 5min},
        {"0.25h", 15min},
        {"1.000000001s", 1'000'000'001ns},
        {"9223372036854775807ns", std::chrono::nanoseconds::max()},
    };
    for (const auto& [text, time] : all) EXPECT_EQ(parse_duration(text).value(), time) << text;
    for (const char* text : {"", "s", "0", "10", "-1s", "+1s", " 1s", "1s ", "1d", "1e3s", "nans", "infs", "0.5ns",
                             "9223372036854775808ns", "9223372036.9s", "2562048h"})
        EXPECT_EQ(parse_duration(text).code(), status::invalid_argument) << "'" << text << "'";
}

/// What would be right, if it is clear what was meant.
TEST(quantities, a_refusal_says_what_was_probably_meant) {
    const auto proposed = [](const std::string& said) {
        const std::size_t at = said.find("did you mean ");
        return at == std::string::npos ? "" : said.substr(at + 13);
    };
    for (const auto& [text, meant] : {std::pair{"64kb", "64KiB?"},
                                      {"1.5 GB", "1.5GiB?"},
                                      {"2tib", "2TiB?"},
                                      {"4096B", "4096?"},
                                      {"many", ""},
                                      {"-1", ""},
                                      {"1.3KB", ""}})
        EXPECT_EQ(proposed(parse_size(text).error().message), meant) << text;
    for (const auto& [text, meant] : {std::pair{"5", "5s?"},
                                      {"10 ms", "10ms?"},
                                      {"2sec", "2s?"},
                                      {"3min", "3m?"},
                                      {"7\xc2\xb5s", "7us?"},
                                      {"1d", ""},
                                      {"soon", ""}})
        EXPECT_EQ(proposed(parse_duration(text).error().message), meant) << text;
    EXPECT_LT(parse_size(std::string(10'000, '9')).error().message.size(), 200U);
}

TEST(options, default_limits_of_a_server_fit_default_channels) {
    const channel_options channel;
    const server_options server;
    const std::size_t session_bytes = slot_memory::size_bytes(channel.slots, channel.request_bytes) +
                                      slot_memory::size_bytes(channel.slots, channel.response_bytes);
    EXPECT_GE(server.max_memory_bytes / session_bytes, server.max_sessions);
}

}  // namespace
}  // namespace accel::core
