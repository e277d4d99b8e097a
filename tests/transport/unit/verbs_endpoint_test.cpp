// SPDX-License-Identifier: Apache-2.0
#include "verbs/endpoint.hpp"

#include <accel_transport/detail/wire/response_target.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace accel::verbs {
namespace {

using wire::extension_head;
using wire::response_target;
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

TEST(verbs_endpoint, an_endpoint_is_read_as_it_was_written_and_at_no_other_length) {
    for (const endpoint& sent : {good_endpoint(), good_endpoint_with_payloads_apart()}) {
        auto bytes = bytes_of(sent);
        EXPECT_EQ(bytes.size(), sent.apart() ? 96U : 64U);
        auto parsed = parse_endpoint(bytes);
        ASSERT_TRUE(parsed.ok()) << parsed.error().message;
        EXPECT_EQ(bytes_of(*parsed), bytes);
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

/// What a reader has to find: the last response target, or nothing where the bytes are no extensions.
std::optional<response_target> expected_in(std::span<const std::byte> bytes) {
    response_target found;
    std::size_t at = 0;
    const auto number = [&](std::size_t offset) {
        return std::to_integer<std::size_t>(bytes[at + offset]) | std::to_integer<std::size_t>(bytes[at + offset + 1])
                                                                      << 8;
    };
    while (at != bytes.size()) {
        if (at + 8 > bytes.size()) return std::nullopt;
        const std::size_t length = number(2);
        const std::size_t end = at + 8 + length + (8 - length % 8) % 8;
        if (end > bytes.size()) return std::nullopt;
        if (number(0) == response_target_type && length != 24) return std::nullopt;
        if (number(0) == response_target_type) std::memcpy(&found, bytes.data() + at + 8, 24);
        at = end;
    }
    return found;
}

/// Extensions of all kinds behind one another, some with a wrong length, some cut off.
std::vector<std::byte> random_extensions(std::minstd_rand& random) {
    std::vector<std::byte> out;
    for (auto count = random() % 4; count > 0; --count) {
        const bool target = random() % 3 == 0;
        extension_head head{target ? response_target_type : static_cast<std::uint16_t>(2 + random() % 900),
                            static_cast<std::uint16_t>(target ? 24 : random() % 30), 0};
        const std::size_t begin = out.size();
        out.resize(begin + sizeof head + (head.length + 7U) / 8 * 8);
        for (std::size_t i = begin; i < out.size(); ++i) out[i] = static_cast<std::byte>(random());
        if (random() % 12 == 0) head.length = static_cast<std::uint16_t>(random() % 2 == 0 ? random() % 40 : random());
        std::memcpy(out.data() + begin, &head, sizeof head);
    }
    if (!out.empty() && random() % 8 == 0) out.resize(random() % out.size());
    return out;
}

TEST(verbs_response_target, a_response_target_is_found_among_other_extensions_of_the_right_lengths) {
    std::minstd_rand random(7);
    int found_some = 0;
    int refused = 0;
    for (int round = 0; round < 50'000; ++round) {
        const auto bytes = random_extensions(random);
        const auto expected = expected_in(bytes);
        response_target found;
        ASSERT_EQ(wire::find_response_target(bytes.data(), bytes.size(), found), expected.has_value()) << round;
        refused += expected ? 0 : 1;
        if (!expected) continue;
        ASSERT_EQ(found.address, expected->address) << round;
        ASSERT_EQ(found.length, expected->length) << round;
        ASSERT_EQ(found.key, expected->key) << round;
        found_some += found.length != 0 ? 1 : 0;
    }
    EXPECT_GT(found_some, 1'000);
    EXPECT_GT(refused, 1'000);
}

}  // namespace
}  // namespace accel::verbs
