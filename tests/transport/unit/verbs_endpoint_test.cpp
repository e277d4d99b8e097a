// SPDX-License-Identifier: Apache-2.0
#include "verbs/endpoint.hpp"

#include <accel_transport/detail/wire/response_target.hpp>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace accel::verbs {
namespace {

using wire::extension_head;
using wire::response_target;
using wire::response_target_extension;
using wire::response_target_type;

endpoint good_endpoint() {
    endpoint e;
    e.layer = link_layer::ethernet;
    e.mtu = 3;
    e.queue_pair = 0x1234;
    e.first_psn = 0xffffff;
    e.slots_address = 0x7f0000000000;
    e.slots_stride = 320;
    e.slots_key = 77;
    e.slots = 8;
    return e;
}

std::vector<std::byte> bytes_of(const endpoint& e) {
    std::vector<std::byte> out(e.size_bytes());
    std::memcpy(out.data(), &e, out.size());
    return out;
}

endpoint good_endpoint_with_payloads_apart() {
    endpoint e = good_endpoint();
    e.flags = payloads_apart;
    e.payloads_address = 0x7e0000000000;
    e.payloads_stride = 65536;
    e.payloads_key = 78;
    return e;
}

TEST(verbs_endpoint, an_endpoint_is_read_as_it_was_written) {
    for (const endpoint& sent : {good_endpoint(), good_endpoint_with_payloads_apart()}) {
        const auto bytes = bytes_of(sent);
        EXPECT_EQ(bytes.size(), sent.apart() ? 96U : 64U);
        auto parsed = parse_endpoint(bytes);
        ASSERT_TRUE(parsed.ok()) << parsed.error().message;
        EXPECT_EQ(bytes_of(*parsed), bytes);
    }
}

TEST(verbs_endpoint, every_other_length_is_refused) {
    for (const endpoint& sent : {good_endpoint(), good_endpoint_with_payloads_apart()}) {
        auto bytes = bytes_of(sent);
        bytes.resize(130);
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            if (length == sent.size_bytes()) continue;
            EXPECT_EQ(parse_endpoint({bytes.data(), length}).code(), status::protocol_error) << length;
        }
    }
}

struct broken {
    const char* what;
    void (*break_it)(endpoint&);
    status expected;
};

TEST(verbs_endpoint, each_field_out_of_range_is_refused) {
    const broken all[] = {
        {"format", [](endpoint& e) { e.format = 2; }, status::version_mismatch},
        {"layer 0", [](endpoint& e) { e.layer = static_cast<link_layer>(0); }, status::protocol_error},
        {"layer 3", [](endpoint& e) { e.layer = static_cast<link_layer>(3); }, status::protocol_error},
        {"mtu 0", [](endpoint& e) { e.mtu = 0; }, status::protocol_error},
        {"mtu 6", [](endpoint& e) { e.mtu = 6; }, status::protocol_error},
        {"flags", [](endpoint& e) { e.flags = 4; }, status::protocol_error},
        {"plain arrivals in one piece", [](endpoint& e) { e.flags = plain_arrivals; }, status::protocol_error},
        {"no stride of payloads", [](endpoint& e) { e.flags = payloads_apart; }, status::protocol_error},
        {"queue pair", [](endpoint& e) { e.queue_pair = 1U << 24; }, status::protocol_error},
        {"psn", [](endpoint& e) { e.first_psn = 1U << 24; }, status::protocol_error},
        {"no slots", [](endpoint& e) { e.slots = 0; }, status::protocol_error},
        {"no stride", [](endpoint& e) { e.slots_stride = 0; }, status::protocol_error},
    };
    for (const broken& each : all) {
        endpoint e = good_endpoint();
        each.break_it(e);
        EXPECT_EQ(parse_endpoint(bytes_of(e)).code(), each.expected) << each.what;
    }
}

std::vector<std::byte> extension(std::uint16_t type, std::size_t length, std::byte fill = std::byte{0}) {
    extension_head head{type, static_cast<std::uint16_t>(length), 0};
    std::vector<std::byte> out(sizeof head + (length + 7) / 8 * 8, fill);
    std::memcpy(out.data(), &head, sizeof head);
    return out;
}

std::vector<std::byte> operator+(std::vector<std::byte> a, const std::vector<std::byte>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::vector<std::byte> response_target_bytes() {
    response_target_extension made;
    made.value = {0x1000, 64, 9, 0};
    std::vector<std::byte> out(sizeof made);
    std::memcpy(out.data(), &made, sizeof made);
    return out;
}

bool find_response_target(std::span<const std::byte> extensions, response_target& out) {
    return wire::find_response_target(extensions.data(), extensions.size(), out);
}

TEST(verbs_response_target, a_response_target_is_found_among_unknown_extensions) {
    response_target found;
    ASSERT_TRUE(find_response_target(extension(7, 13) + response_target_bytes() + extension(900, 0), found));
    EXPECT_EQ(found.address, 0x1000U);
    EXPECT_EQ(found.length, 64U);
    EXPECT_EQ(found.key, 9U);
}

TEST(verbs_response_target, the_answer_stays_in_its_slot_without_a_response_target) {
    response_target found;
    EXPECT_TRUE(find_response_target({}, found));
    EXPECT_TRUE(find_response_target(extension(2, 8), found));
    EXPECT_EQ(found.length, 0U);
}

TEST(verbs_response_target, a_truncated_or_longer_response_target_is_refused) {
    response_target found;
    const auto whole = response_target_bytes();
    for (std::size_t length = 1; length < whole.size(); ++length) {
        EXPECT_FALSE(find_response_target({whole.data(), length}, found)) << length;
    }
    EXPECT_FALSE(find_response_target(extension(response_target_type, 16), found))
        << "a response target of another length";
    EXPECT_FALSE(find_response_target(extension(response_target_type, 32), found));
    auto endless = extension(5, 8);
    endless[2] = std::byte{0xff};
    endless[3] = std::byte{0xff};
    EXPECT_FALSE(find_response_target(endless, found));
}

TEST(verbs_response_target, random_bytes_never_lead_out_of_bounds) {
    std::minstd_rand random(7);
    for (int round = 0; round < 20'000; ++round) {
        std::vector<std::byte> bytes(8 * (random() % 25));
        for (auto& each : bytes) each = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 5);
        response_target found;
        (void)find_response_target(bytes, found);
    }
}

}  // namespace
}  // namespace accel::verbs
