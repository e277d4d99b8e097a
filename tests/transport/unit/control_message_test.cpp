// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_message.hpp"

#include <random>

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
            {0, going_away{}}};
}

TEST(control_message_test, every_kind_of_message_is_read_as_it_was_written) {
    for (const control_message& sent : samples()) {
        const auto bytes = encode_control(sent);
        auto got = decode_control(bytes);
        ASSERT_TRUE(got.ok()) << got.error().message;
        EXPECT_EQ(got->request, sent.request);
        EXPECT_EQ(got->body.index(), sent.body.index());
        EXPECT_EQ(encode_control(*got), bytes);
    }
}

TEST(control_message_test, a_hello_keeps_its_fields) {
    auto got = decode_control(encode_control(sample_hello()));
    ASSERT_TRUE(got.ok());
    const auto& body = std::get<hello>(got->body);
    EXPECT_EQ(body.request.version, 7);
    EXPECT_EQ(body.request.scheme, "tcp");
    EXPECT_EQ(body.request.wanted.slots, 8U);
    EXPECT_EQ(body.request.wanted.request_bytes, 1U << 20);
    EXPECT_EQ(body.request.wanted.response_bytes, 1U << 10);
    EXPECT_EQ(body.request.peer_timeout, 500ms);
    EXPECT_EQ(body.request.description.size(), 3U);
    EXPECT_EQ(body.sent, 12345ns);
}

TEST(control_message_test, a_welcome_keeps_its_fields) {
    auto got = decode_control(encode_control(sample_welcome()));
    ASSERT_TRUE(got.ok());
    const auto& body = std::get<welcome>(got->body);
    EXPECT_EQ(body.grant.session_id, 77U);
    EXPECT_EQ(body.grant.token[15], std::byte{15});
    EXPECT_EQ(body.grant.peer_timeout, 250ms);
    EXPECT_EQ(body.grant.description.size(), 512U);
    EXPECT_EQ(body.boot[3], std::byte{0xab});
    EXPECT_EQ(body.clocks.received, 2ns);
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
}

template <class Change>
status changed_hello(Change change) {
    auto message = sample_hello();
    change(std::get<hello>(message.body));
    return decode_control(encode_control(message)).code();
}

TEST(control_message_test, values_out_of_range_are_refused) {
    EXPECT_EQ(changed_hello([](hello&) {}), status::ok);
    EXPECT_EQ(changed_hello([](hello& m) { m.request.wanted.slots = 0; }), status::protocol_error);
    EXPECT_EQ(changed_hello([](hello& m) { m.request.wanted.slots = max_slots + 1; }), status::protocol_error);
    EXPECT_EQ(changed_hello([](hello& m) { m.request.wanted.request_bytes = max_payload_bytes + 1; }),
              status::protocol_error);
    EXPECT_EQ(changed_hello([](hello& m) { m.request.wanted.response_bytes = ~std::uint64_t{0}; }),
              status::protocol_error);
    // Durations are brought into range before they are sent.
    EXPECT_EQ(changed_hello([](hello& m) { m.request.peer_timeout = nanoseconds{0}; }), status::ok);
    EXPECT_EQ(changed_hello([](hello& m) { m.request.peer_timeout = never; }), status::ok);
    auto bytes = encode_control({1, goodbye{1, status::ok}});
    EXPECT_EQ(decode_control(bytes).code(), status::protocol_error);
    auto unnamed = sample_welcome();
    std::get<welcome>(unnamed.body).grant.session_id = 0;
    EXPECT_EQ(decode_control(encode_control(unnamed)).code(), status::protocol_error);
}

TEST(control_message_test, names_of_targets_are_read_unchanged_or_refused) {
    const auto code = [](std::string name) { return decode_control(encode_control({1, find_target{name}})).code(); };
    auto good = decode_control(encode_control({1, find_target{"model-7/b"}}));
    ASSERT_TRUE(good.ok());
    EXPECT_EQ(std::get<find_target>(good->body).name, "model-7/b");
    EXPECT_EQ(code(""), status::protocol_error);
    EXPECT_EQ(code("a b"), status::protocol_error);
    EXPECT_EQ(code("a\x7f"), status::protocol_error);
    EXPECT_EQ(code(std::string("a\0", 2)), status::protocol_error);
    EXPECT_EQ(code("\x80"), status::protocol_error);
    auto longer = encode_control({1, find_target{std::string(64, 'n')}});
    longer[16] = std::byte{65};
    longer.push_back(std::byte{'n'});
    EXPECT_EQ(decode_control(longer).code(), status::protocol_error) << "65 bytes";
    EXPECT_EQ(decode_control(encode_control({1, target_found{0}})).code(), status::protocol_error);
}

TEST(control_message_test, invalid_lists_of_cancelled_calls_are_refused) {
    const auto code = [](std::vector<call_id> calls) {
        return decode_control(encode_control({0, cancel_calls{5, std::move(calls)}})).code();
    };
    auto most = decode_control(encode_control({0, cancel_calls{5, std::vector<call_id>(max_cancels, {3, 4})}}));
    ASSERT_TRUE(most.ok());
    EXPECT_EQ(std::get<cancel_calls>(most->body).session_id, 5U);
    EXPECT_EQ(std::get<cancel_calls>(most->body).calls, std::vector<call_id>(max_cancels, {3, 4}));
    EXPECT_EQ(code({}), status::protocol_error);
    EXPECT_EQ(code({{max_slots, 1}}), status::protocol_error);
    EXPECT_EQ(code({{0, 0}}), status::protocol_error) << "no call has generation 0";
    auto longer = encode_control({0, cancel_calls{5, std::vector<call_id>(max_cancels, {3, 4})}});
    longer[24] = std::byte{max_cancels + 1};
    longer.resize(longer.size() + sizeof(call_id), std::byte{1});
    EXPECT_EQ(decode_control(longer).code(), status::protocol_error);
    longer[24] = std::byte{1};
    EXPECT_EQ(decode_control(longer).code(), status::protocol_error) << "fewer than there are bytes";
}

TEST(control_message_test, texts_of_a_peer_are_made_printable) {
    auto got = decode_control(encode_control({1, refused{status::overloaded, "no\x1b[31m\n"}}));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(std::get<refused>(got->body).why, "no?[31m?");
}

TEST(control_message_test, random_changes_are_parsed_or_refused) {
    std::minstd_rand random{1};
    std::size_t refused_count = 0;
    for (int round = 0; round < 20'000; ++round) {
        auto bytes = encode_control(samples()[static_cast<std::size_t>(round) % 7]);
        for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
        auto got = decode_control(bytes);
        if (!got.ok()) {
            ++refused_count;
            EXPECT_FALSE(got.error().message.empty());
        }
    }
    EXPECT_GT(refused_count, 5'000U);
}

TEST(control_message_test, this_host_has_an_identity_that_stays) {
    EXPECT_EQ(read_boot_identity(), read_boot_identity());
    EXPECT_NE(read_boot_identity(), boot_identity{});
}

}  // namespace
}  // namespace accel::core
