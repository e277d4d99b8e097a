// SPDX-License-Identifier: Apache-2.0
#include "core/uri.hpp"

#include "core/registry.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using pairs = std::vector<std::pair<std::string, std::string>>;

TEST(uri, a_uri_is_taken_apart) {
    struct whole {
        std::string text;
        std::string scheme;
        std::string host;
        std::uint16_t port;
        pairs options{};
    };
    const std::string longest(64, 'a');
    const std::vector<whole> good{
        {"tcp://server.example:4711?slots=8&poll=busy",
         "tcp",
         "server.example",
         4711,
         {{"slots", "8"}, {"poll", "busy"}}},
        {"tcp://h:0", "tcp", "h", 0},
        {"tcp://h:65535", "tcp", "h", 65535},
        {"zmq://[::1]:9", "zmq", "::1", 9},
        {"local://digits?slots=4", "local", "digits", 0, {{"slots", "4"}}},
        {"shm://digits-1.a_b?slots=4", "shm", "@digits-1.a_b", 0, {{"slots", "4"}}},
        {"shm://" + longest, "shm", "@" + longest, 0},
        {"tcp://h:1?key_file=%2Ftmp%2Fa%26b%3dc", "tcp", "h", 1, {{"key_file", "/tmp/a&b=c"}}},
        {"tcp://h:1?key_file=%41", "tcp", "h", 1, {{"key_file", "A"}}},
        {"tcp://h:1?key_file=", "tcp", "h", 1, {{"key_file", ""}}},
        {"tcp://h:1?", "tcp", "h", 1},
        {"tcp://h:1?&&slots=1&", "tcp", "h", 1, {{"slots", "1"}}},
    };
    for (const whole& each : good) {
        const auto parsed = parse_uri(each.text);
        ASSERT_TRUE(parsed) << each.text << ": " << parsed.error().message;
        EXPECT_EQ(parsed.value().scheme, each.scheme) << each.text;
        EXPECT_EQ(parsed.value().host, each.host) << each.text;
        EXPECT_EQ(parsed.value().port, each.port) << each.text;
        EXPECT_EQ(parsed.value().options, each.options) << each.text;
        EXPECT_EQ(parsed.value().text(), each.text.substr(0, each.text.find('?')));
    }
    constexpr std::string_view longer = "tcp://h:1?key_file=%41";
    EXPECT_FALSE(parse_uri(longer.substr(0, longer.size() - 1))) << "the digit behind the text is not its own";
}

TEST(uri, dns_is_a_prefix_of_clients_schemes_with_hosts) {
    const auto named = parse_client_uri("dns+tcp://name:1?slots=4");
    ASSERT_TRUE(named) << named.error().message;
    EXPECT_TRUE(named->dns);
    EXPECT_EQ(named->text(), "tcp://name:1");
    EXPECT_EQ(named->options.size(), 1U);
    EXPECT_FALSE(parse_client_uri("tcp://name:1")->dns);
    const auto both = parse_client_uris("dns+auto://a:1,b:2");
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_EQ(both->size(), 2U);
    EXPECT_TRUE(both->back().dns);
    for (const char* bad :
         {"dns+shm://a", "dns+local://a", "dns+tcp://*:1", "dns+tcp://a:0", "dns+dns+tcp://a:1", "dns+"})
        EXPECT_FALSE(parse_client_uri(bad)) << bad;
    EXPECT_NE(parse_uri("dns+tcp://a:1").error().message.find("dns+ is for channels"), std::string::npos);
}

TEST(uri, a_uri_of_several_hosts_is_split_into_one_for_each) {
    const auto hosts = one_host_each("tcp://a:1,[::1]:2,c:3?slots=4&key_file=a,b");
    ASSERT_TRUE(hosts) << hosts.error().message;
    EXPECT_EQ(hosts.value(),
              (std::vector<std::string>{"tcp://a:1?slots=4&key_file=a,b", "tcp://[::1]:2?slots=4&key_file=a,b",
                                        "tcp://c:3?slots=4&key_file=a,b"}));
    EXPECT_EQ(one_host_each("local://a,b").value(), (std::vector<std::string>{"local://a", "local://b"}));
    EXPECT_EQ(one_host_each("tcp://a:1?x=,").value(), (std::vector<std::string>{"tcp://a:1?x=,"}));
    for (const char* text : {"tcp://,", "tcp://a:1,", "tcp://,a:1", "tcp://a:1,,b:1", "shm://,a"})
        EXPECT_EQ(one_host_each(text).code(), status::invalid_argument) << text;
    std::string many = "local://0";
    for (std::size_t i = 1; i < max_hosts; ++i) many += ",0";
    ASSERT_TRUE(one_host_each(many));
    EXPECT_EQ(one_host_each(many).value().size(), max_hosts);
    EXPECT_EQ(one_host_each(many + ",0").code(), status::invalid_argument);
    EXPECT_EQ(one_host_each("tcp://" + std::string(5000, 'h')).code(), status::invalid_argument);
    for (const char* text : {"", "tcp", "tcp://", "unix://a", "a,b", "/a,b", "tcp://?slots=1"}) {
        const auto left_to_parse_uri = one_host_each(text);
        ASSERT_TRUE(left_to_parse_uri) << text;
        EXPECT_EQ(left_to_parse_uri.value(), std::vector<std::string>{text});
        EXPECT_FALSE(parse_uri(text)) << text;
    }
}

TEST(uri, invalid_uris_are_refused_with_a_sentence) {
    std::vector<std::string> bad{"",
                                 "tcp",
                                 "tcp:/h:1",
                                 "://h:1",
                                 "TCP://h:1",
                                 "t-p://h:1",
                                 "tcp://",
                                 "tcp://h",
                                 "tcp://h:",
                                 "tcp://h:x",
                                 "tcp://h:1x",
                                 "tcp://h:-1",
                                 "tcp://h:65536",
                                 "tcp://:1",
                                 "tcp://::1:1",
                                 "tcp://[::1",
                                 "tcp://[]:1",
                                 "tcp://[host]:1",
                                 "tcp://[[::1]]:1",
                                 "tcp://[::1]]:1",
                                 "tcp://a]b:1",
                                 "tcp://a b:1",
                                 "tcp://user@h:1",
                                 "tcp://h/x:1",
                                 "local://",
                                 "shm://",
                                 "shm://a:1",
                                 "shm://*",
                                 "shm://@a",
                                 "shm://a/b",
                                 "tcp://h:1?a=%",
                                 "tcp://h:1?a=%4",
                                 "tcp://h:1?a=%g1",
                                 "tcp://h:1?%zz=1",
                                 "tcp://h:1?=8",
                                 "tcp://h:1?slots"};
    bad.push_back("shm://" + std::string(65, 'a'));
    bad.push_back("tcp://" + std::string(4096 - 7, 'h') + ":1");
    for (const std::string& text : bad) {
        const auto parsed = parse_uri(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.code(), status::invalid_argument);
        EXPECT_GT(parsed.error().message.size(), 20U);
        EXPECT_LT(parsed.error().message.size(), 5000U);
    }
    EXPECT_TRUE(parse_uri("tcp://h:1?key_file=" + std::string(4096 - 19, 'h'))) << "the longest";
}

TEST(uri, error_names_the_part_that_is_wrong) {
    const auto expect = [](const char* text, const char* part) {
        const auto parsed = parse_uri(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.code(), status::invalid_argument) << text;
        EXPECT_NE(parsed.error().message.find(part), std::string::npos) << parsed.error().message;
    };
    expect("TCP://h:1", "schemes are lower case: tcp://");
    expect("h:1", "the scheme is missing");
    expect("tcp://h:80000", "port '80000' is not a number from 0 to 65535");
    expect("tcp://h:-1", "port '-1' is not a number from 0 to 65535");
    for (const char* port : {"65536", "abc", "", "+1", " 80", "80x"})
        expect(("tcp://h:" + std::string(port)).c_str(),
               ("port '" + std::string(port) + "' is not a number from 0 to 65535").c_str());
    expect("tcp://a*b:1", "'a*b' is not a valid host name");
    expect("tcp://h:1?slots=4&reconnect=true&slots=4", "option slots is given twice");
    expect("tcp://h:1?slots=4&%73lots=8", "option slots is given twice");
    expect("tcp://h", "the port is missing");
    expect("tcp://:1", "the host is missing");
    expect("tcp://a b:1", "'a b' is not a valid host name");
    expect("tcp://a:1,b:2", "only channels and pools on the host take several hosts");
    expect("local://a,b", "only channels and pools on the host take several hosts");
    expect("tcp://::1:1", "an IPv6 address needs brackets");
    expect("tcp://h:1?a=50%", "'50%' has a % without two hexadecimal digits");
    expect("tcp://h:1?slots", "option 'slots' is not key=value");
    expect("tcp://h:1?slots=4,i:1?slots=8", "options follow the last host, once");
}

TEST(uri, a_uri_of_a_client_needs_a_host_and_a_port) {
    const auto expect = [](const char* text, const char* part) {
        ASSERT_TRUE(parse_uri(text)) << "a server may say that: " << text;
        const auto parsed = parse_client_uri(text);
        ASSERT_EQ(parsed.code(), status::invalid_argument) << text;
        EXPECT_NE(parsed.error().message.find(part), std::string::npos) << parsed.error().message;
    };
    expect("tcp://*:5555", "* is for servers");
    expect("auto://*:5555", "* is for servers");
    expect("zmq://h:0", "port 0 is for servers");
    expect("rdma://[::1]:0", "port 0 is for servers");
    EXPECT_TRUE(parse_client_uri("tcp://h:1"));
    EXPECT_TRUE(parse_client_uri("local://h"));
    EXPECT_TRUE(parse_client_uri("shm://h"));
}

TEST(uri, unknown_schemes_and_unix_sockets_are_refused_with_what_there_is) {
    for (const char* text : {"http://x", "inproc://x", "http://h:80/path", "tpc://h:1", "http:///x"}) {
        const auto parsed = parse_uri(text);
        ASSERT_EQ(parsed.code(), status::unsupported) << text;
        const std::string& sentence = parsed.error().message;
        const std::string scheme(text, std::string_view(text).find(':'));
        EXPECT_EQ(sentence.find("unknown scheme '" + scheme + "'"), 0U) << sentence;
        for (const char* each : {"local", "shm", "gdr", "rdma", "gpu", "tcp", "zmq", "auto"}) {
            EXPECT_NE(sentence.find(each), std::string::npos) << each;
            EXPECT_TRUE(is_scheme_name(each));
        }
    }
    for (const char* text : {"unix:///run/digits.sock", "ipc:///run/digits.sock", "tcp:///run/digits.sock",
                             "zmq://./digits.sock", "/run/digits.sock"}) {
        const auto parsed = parse_uri(text);
        ASSERT_EQ(parsed.code(), status::unsupported) << text;
        EXPECT_NE(parsed.error().message.find("Unix sockets are not supported"), std::string::npos)
            << parsed.error().message;
    }
}

}  // namespace
}  // namespace accel::core
