// SPDX-License-Identifier: Apache-2.0
#include "core/slot_memory.hpp"
#include "core/uri.hpp"

#include <string>
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

TEST(options, verbs_out_of_bounds_are_refused) {
    for (const char* bad :
         {"mtu=1500", "gid_index=-2", "gid_index=256", "gid_index=x", "ack_timeout=0ns", "ack_retries=7"}) {
        EXPECT_EQ(client(bad).code(), status::invalid_argument) << bad;
        EXPECT_EQ(serving(bad).code(), status::invalid_argument) << bad;
    }
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
    EXPECT_EQ(client("insecure=true&server_key=a").code(), status::invalid_argument);
    EXPECT_EQ(client("cert_file=a&server_key=b").code(), status::invalid_argument);
    EXPECT_EQ(serving("ca_file=a&authorized_keys=b").code(), status::invalid_argument);
    EXPECT_EQ(serving("insecure=true&authorized_keys=a").code(), status::invalid_argument);
    EXPECT_EQ(client("backoff_min=2s&backoff_max=1s").code(), status::invalid_argument);
    EXPECT_EQ(serving("data_port=65535&workers=2").code(), status::invalid_argument);
    EXPECT_TRUE(serving("data_port=65534&workers=2"));
    EXPECT_TRUE(serving("data_port=65535&workers=0"));
}

TEST(options, an_error_for_a_malformed_value_says_what_is_expected) {
    const auto said = [](const char* query) { return client(query).error().message; };
    EXPECT_EQ(said("call_timeout=5"),
              "'5' is not a valid value for call_timeout: expected a duration such as 20us, 500ms or 2s");
    EXPECT_EQ(said("reconnect=maybe"), "'maybe' is not a valid value for reconnect: expected true or false");
    EXPECT_EQ(said("slots=many"), "'many' is not a valid value for slots: expected a whole number");
    for (const char* port : {"65536", "abc", "", "+1", " 80", "80x"})
        EXPECT_EQ(serving("data_port=" + std::string(port)).error().message,
                  "'" + std::string(port) + "' is not a valid value for data_port: expected a port, 0 to 65535");
}

TEST(options, an_error_for_a_misspelt_key_lists_the_valid_keys) {
    const auto read = client("slotz=5");
    ASSERT_FALSE(read);
    EXPECT_EQ(read.code(), status::invalid_argument);
    for (const char* word : {"slotz", "slots", "backoff_max", "server_key"})
        EXPECT_NE(read.error().message.find(word), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find("authorized_keys"), std::string::npos) << "that one is a server's";
}

TEST(options, malformed_values_are_refused) {
    for (const char* query :
         {"slots=", "slots=-1", "slots=4294967296", "slots=1.5", "slots=8K", "slots= 8", "request_bytes=1k",
          "request_bytes=99999999999999999999", "request_bytes=17179869184G", "call_timeout=5", "call_timeout=5m",
          "call_timeout=ms", "call_timeout=9223372036854775808ns", "call_timeout=9999999999999s", "poll=Busy",
          "reconnect=maybe", "reconnect=", "insecure=yes"}) {
        const auto read = client(query);
        ASSERT_FALSE(read) << query;
        EXPECT_EQ(read.code(), status::invalid_argument) << query;
    }
    for (const char* query : {"data_port=65536", "memory=gpu", "memory=cuda:", "memory=cuda:-1", "memory=cuda:256"})
        EXPECT_FALSE(serving(query)) << query;
}

TEST(options, values_out_of_range_are_refused) {
    for (const char* query :
         {"slots=0", "slots=65537", "request_bytes=1025M", "response_bytes=2G", "connect_timeout=0s",
          "call_timeout=0ms", "peer_timeout=1ms", "backoff_min=2s&backoff_max=1s"})
        EXPECT_FALSE(client(query)) << query;
    for (const char* query : {"workers=100000", "max_sessions=0", "max_slots=0", "max_exchanges=0", "max_slots=65537",
                              "max_request_bytes=1025M", "peer_timeout=0ms"})
        EXPECT_FALSE(serving(query)) << query;
    channel_options from;
    from.slots = 0;
    EXPECT_FALSE(client("", from)) << "code is checked like a URI";
    from = {};
    from.spin = -1ns;
    EXPECT_FALSE(client("", from));
}

TEST(options, default_limits_of_a_server_fit_default_channels) {
    const channel_options channel;
    const server_options server;
    const std::size_t session_bytes = slot_memory::size_bytes(channel.slots, channel.request_bytes) +
                                      slot_memory::size_bytes(channel.slots, channel.response_bytes);
    EXPECT_GE(server.max_memory_bytes / session_bytes, server.max_sessions);
}

TEST(options, uris_of_one_server_must_agree) {
    EXPECT_TRUE(apply_options(std::vector<uri>{with("workers=2"), with("workers=2&spin=1us")}, server_options{}));
    const auto read = apply_options(std::vector<uri>{with("workers=2"), with("workers=3")}, server_options{});
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find("workers"), std::string::npos);
}

}  // namespace
}  // namespace accel::core
