// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_message.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

control_message sample_hello() {
    hello body;
    body.request.version = 7;
    body.request.scheme = "tcp";
    body.request.wanted = {8, 1 << 20, 1 << 10};
    body.request.peer_timeout = 500ms;
    body.request.description = {std::byte{9}, std::byte{8}, std::byte{7}};
    body.sent = 12345ns;
    return {42, body};
}

control_message sample_welcome() {
    welcome body;
    body.grant.session_id = 77;
    for (std::size_t i = 0; i < body.grant.token.size(); ++i) body.grant.token[i] = static_cast<std::byte>(i);
    body.grant.granted = {8, 100, 200};
    body.grant.peer_timeout = 250ms;
    body.grant.description = link_description(512, std::byte{5});
    body.boot[3] = std::byte{0xab};
    body.clocks = {1ns, 2ns, 3ns};
    return {43, body};
}

std::vector<control_message> samples() {
    return {sample_hello(),
            sample_welcome(),
            {44, refused{status::overloaded, "all 3 sessions are taken"}},
            {45, query{}},
            {46, offers{{"tcp", "zmq"}}},
            {0, heartbeat{{7ns, 8ns, 9ns}}},
            {0, goodbye{77, status::peer_lost}},
            {47, find_target{std::string(64, '~')}},
            {48, target_found{0xfedcba98}},
            {0, cancel_calls{77, {{0, 1}, {max_slots - 1, ~std::uint32_t{0}}}}},
            {0, going_away{}},
            {49, list_targets{"m"}},
            {50, targets_listed{{{"a", "b", std::string(64, '~')}, true}}},
            {51, check_health{"m"}},
            {52, health_checked{health_state::not_serving}}};
}

TEST(control_message_test, messages_are_read_as_they_were_written) {
    for (const control_message& sent : samples()) {
        const auto bytes = encode_control(sent);
        auto got = decode_control(bytes);
        ASSERT_TRUE(got.ok()) << got.error().message;
        EXPECT_EQ(got->request, sent.request);
        EXPECT_EQ(got->body.index(), sent.body.index());
        EXPECT_EQ(encode_control(*got), bytes);
    }
    const auto asked = std::get<hello>(decode_control(encode_control(sample_hello()))->body);
    EXPECT_EQ(asked.request.version, 7);
    EXPECT_EQ(asked.request.scheme, "tcp");
    EXPECT_EQ(asked.request.wanted.slots, 8U);
    EXPECT_EQ(asked.request.wanted.request_bytes, 1U << 20);
    EXPECT_EQ(asked.request.wanted.response_bytes, 1U << 10);
    EXPECT_EQ(asked.request.peer_timeout, 500ms);
    EXPECT_EQ(asked.request.description.size(), 3U);
    EXPECT_EQ(asked.sent, 12345ns);
    const auto told = std::get<welcome>(decode_control(encode_control(sample_welcome()))->body);
    EXPECT_EQ(told.grant.session_id, 77U);
    EXPECT_EQ(told.grant.token[15], std::byte{15});
    EXPECT_EQ(told.grant.peer_timeout, 250ms);
    EXPECT_EQ(told.grant.description.size(), 512U);
    EXPECT_EQ(told.boot[3], std::byte{0xab});
    EXPECT_EQ(told.clocks.received, 2ns);
}

TEST(control_message_test, truncated_or_longer_messages_are_refused) {
    for (const control_message& sent : samples()) {
        auto bytes = encode_control(sent);
        for (std::size_t length = 0; length < bytes.size(); ++length)
            EXPECT_FALSE(decode_control(std::span{bytes}.first(length)).ok());
        bytes.push_back(std::byte{0});
        EXPECT_EQ(decode_control(bytes).code(), status::protocol_error);
    }
}

TEST(control_message_test, another_version_is_a_version_mismatch) {
    auto bytes = encode_control(sample_hello());
    bytes[4] = std::byte{2};
    auto got = decode_control(bytes);
    ASSERT_EQ(got.code(), status::version_mismatch);
    EXPECT_NE(got.error().message.find("version 2"), std::string::npos);
    EXPECT_NE(got.error().message.find("version 1"), std::string::npos);
    EXPECT_EQ(question_of_malformed(bytes), 42U);
    EXPECT_EQ(question_of_malformed(encode_control({9, heartbeat{}})), 0U);
    EXPECT_EQ(answer_of_malformed(bytes), 0U);
    EXPECT_EQ(answer_of_malformed(encode_control({9, offers{}})), 9U);
    EXPECT_EQ(question_of_malformed(encode_control({9, find_target{"a b"}})), 9U);
    EXPECT_EQ(answer_of_malformed(encode_control({9, target_found{}})), 9U);
    EXPECT_EQ(question_of_malformed(encode_control({9, list_targets{"a b"}})), 9U);
    EXPECT_EQ(answer_of_malformed(encode_control({9, targets_listed{}})), 9U);
    EXPECT_EQ(question_of_malformed(encode_control({9, check_health{"a b"}})), 9U);
    EXPECT_EQ(answer_of_malformed(encode_control({9, health_checked{}})), 9U);
}

using bytes = std::vector<std::byte>;
using values = std::vector<std::uint64_t>;

/// One field of a message, by its place on the wire (docs/protocol.md, section 4).
struct field {
    const char* name;
    control_message in;
    std::size_t at;
    std::size_t size;
    values good;
    values bad;
    bytes each{};  ///< the field counts what follows it, and this is one of them
};

/// The message with another value in this field, and as much behind it as it counts.
bytes with(const field& what, std::uint64_t value) {
    bytes out = encode_control(what.in);
    std::uint64_t before = 0;
    std::memcpy(&before, out.data() + what.at, what.size);
    std::memcpy(out.data() + what.at, &value, what.size);
    for (; !what.each.empty() && before < value; ++before)
        out.insert(out.begin() + static_cast<std::ptrdiff_t>(what.at + what.size), what.each.begin(), what.each.end());
    return out;
}

std::vector<field> fields() {
    const bytes letter{std::byte{'n'}};
    const bytes name_of_one{std::byte{1}, std::byte{'n'}};
    bytes call(sizeof(call_id));
    call[0] = call[4] = std::byte{1};
    const control_message beat{0, heartbeat{{7ns, 8ns, 9ns}}};
    const control_message cancel{0, cancel_calls{77, {{1, 1}}}};
    constexpr std::uint64_t slots = max_slots;
    constexpr std::uint64_t most = max_payload_bytes;
    const values times{20'000'000, 86'400'000'000'000};
    const values no_times{0, 19'999'999, 86'400'000'000'001, ~std::uint64_t{0}};
    constexpr std::uint64_t beyond = std::uint64_t{1} << 62;
    const values reading{0, beyond - 1};
    const values no_reading{beyond, ~std::uint64_t{0}};
    const values failures{1, status_count - 1};
    const values no_failures{0, status_count, 0xffff};
    return {
        {"magic", beat, 0, 4, {0x4c454341}, {0, 0x4c454342}},
        {"kind", beat, 6, 2, {6}, {0, 16, 0xffff}},
        {"slots wanted", sample_hello(), 18, 4, {1, slots}, {0, slots + 1, 0xffff'ffff}},
        {"request bytes wanted", sample_hello(), 22, 8, {0, most}, {most + 1, ~std::uint64_t{0}}},
        {"response bytes wanted", sample_hello(), 30, 8, {0, most}, {most + 1, ~std::uint64_t{0}}},
        {"peer_timeout wanted", sample_hello(), 38, 8, times, no_times},
        {"priority", sample_hello(), 46, 1, {0, 1}, {2, 255}},
        {"when it was sent", sample_hello(), 47, 8, reading, no_reading},
        {"scheme", sample_hello(), 55, 1, {3, 16}, {17, 255}, letter},
        {"client's description", sample_hello(), 59, 2, {3, 512}, {513, 2000}, letter},
        {"session", sample_welcome(), 16, 8, {1, ~std::uint64_t{0}}, {0}},
        {"slots granted", sample_welcome(), 40, 4, {1, slots}, {0, slots + 1}},
        {"request bytes granted", sample_welcome(), 44, 8, {0, most}, {most + 1}},
        {"response bytes granted", sample_welcome(), 52, 8, {0, most}, {most + 1}},
        {"peer_timeout granted", sample_welcome(), 60, 8, times, no_times},
        {"echo of a welcome", sample_welcome(), 84, 8, reading, no_reading},
        {"receipt of a hello", sample_welcome(), 92, 8, reading, no_reading},
        {"sending of a welcome", sample_welcome(), 100, 8, reading, no_reading},
        {"server's description", sample_welcome(), 108, 2, {512}, {513}, letter},
        {"refusal", {44, refused{status::overloaded, "no"}}, 16, 2, failures, no_failures},
        {"reason", {44, refused{status::overloaded, "no"}}, 18, 2, {2, 512}, {513}, letter},
        {"number of offers", {46, offers{{"n"}}}, 16, 1, {1, 16}, {17, 255}, name_of_one},
        {"offer", {46, offers{{"n"}}}, 17, 1, {1, 96}, {97, 255}, letter},
        {"echo of a heartbeat", beat, 16, 8, reading, no_reading},
        {"receipt of a heartbeat", beat, 24, 8, reading, no_reading},
        {"sending of a heartbeat", beat, 32, 8, reading, no_reading},
        {"end of a session", {0, goodbye{77, status::peer_lost}}, 24, 2, failures, no_failures},
        {"length of a name", {47, find_target{"n"}}, 16, 1, {1, 64}, {65, 255}, letter},
        {"letter of a name", {47, find_target{"n"}}, 17, 1, {'!', '~'}, {0, '\n', ' ', 0x7f, 0x80, 0xff}},
        {"number of a target", {48, target_found{9}}, 16, 4, {1, 0xffff'ffff}, {0}},
        {"length of a last name", {49, list_targets{"n"}}, 16, 1, {1, 64}, {65, 255}, letter},
        {"letter of a last name", {49, list_targets{"n"}}, 17, 1, {'!', '~'}, {0, '\n', ' ', 0x7f, 0x80, 0xff}},
        {"number of names", {50, targets_listed{{{"n"}, true}}}, 16, 2, {1}, {0, 2, 0xffff}, name_of_one},
        {"length of a listed name", {50, targets_listed{{{"n"}, true}}}, 18, 1, {1, 64}, {0, 65, 255}, letter},
        {"order of names", {50, targets_listed{{{"m", "n"}, false}}}, 21, 1, {'n', '~'}, {'m', 'l', ' '}},
        {"more names", {50, targets_listed{{{"n"}, true}}}, 20, 1, {0, 1}, {2, 255}},
        {"length of a checked name", {51, check_health{"n"}}, 16, 1, {1, 64}, {65, 255}, letter},
        {"health", {52, health_checked{}}, 16, 1, {0, 2}, {3, 255}},
        {"number of calls", cancel, 24, 2, {1, max_cancels}, {0, max_cancels + 1, 1000}, call},
        {"slot of a call", cancel, 26, 4, {0, slots - 1}, {slots, 0xffff'ffff}},
        {"generation of a call", cancel, 30, 4, {1, 0xffff'ffff}, {0}},
    };
}

TEST(control_message_test, each_field_has_its_limits) {
    for (const field& each : fields()) {
        for (const std::uint64_t value : each.good) {
            const bytes sent = with(each, value);
            auto got = decode_control(sent);
            ASSERT_TRUE(got.ok()) << each.name << ' ' << value << ": " << got.error().message;
            EXPECT_EQ(encode_control(*got), sent) << each.name << ' ' << value;
        }
        for (const std::uint64_t value : each.bad)
            EXPECT_EQ(decode_control(with(each, value)).code(), status::protocol_error) << each.name << ' ' << value;
    }
    EXPECT_EQ(decode_control(encode_control({1, find_target{""}})).code(), status::protocol_error);
    EXPECT_EQ(decode_control(encode_control({0, cancel_calls{5, {}}})).code(), status::protocol_error);
    EXPECT_TRUE(decode_control(encode_control({1, list_targets{""}}))) << "the first names";
    EXPECT_TRUE(decode_control(encode_control({1, targets_listed{}}))) << "there are none";
    EXPECT_TRUE(decode_control(encode_control({1, check_health{""}}))) << "of the server";
    EXPECT_FALSE(decode_control(encode_control({1, targets_listed{{{}, true}}})))
        << "a client would ask again for ever";
    bytes fewer = with(fields()[fields().size() - 3], 2);
    fewer[24] = std::byte{1};
    EXPECT_EQ(decode_control(fewer).code(), status::protocol_error) << "one call, and the bytes of two";
}

TEST(control_message_test, a_sender_brings_texts_and_times_into_range) {
    hello body = std::get<hello>(sample_hello().body);
    for (const auto& [wanted, sent] : {std::pair{nanoseconds{-1}, nanoseconds{20ms}},
                                       {nanoseconds{0}, 20ms},
                                       {never, nanoseconds{24h}},
                                       {nanoseconds{1s}, 1s}}) {
        body.request.peer_timeout = wanted;
        auto got = decode_control(encode_control({1, body}));
        ASSERT_TRUE(got.ok()) << got.error().message;
        EXPECT_EQ(std::get<hello>(got->body).request.peer_timeout, sent);
    }
    auto got = decode_control(encode_control({1, refused{status::overloaded, std::string(600, 'a')}}));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(std::get<refused>(got->body).why, std::string(512, 'a'));
    got = decode_control(encode_control({1, refused{status::overloaded, "no\x1b[31m\x1f ~\x7f\x80\n"}}));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(std::get<refused>(got->body).why, "no?[31m? ~???") << "it may end on a terminal";
}

TEST(control_message_test, this_host_has_an_identity_that_stays) {
    EXPECT_EQ(read_boot_identity(), read_boot_identity());
    EXPECT_NE(read_boot_identity(), boot_identity{});
}

}  // namespace
}  // namespace accel::core
