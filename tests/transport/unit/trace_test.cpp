// SPDX-License-Identifier: Apache-2.0
// Traces: as the header `traceparent`, and as an extension of a request.
#include "core/protocol.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"

#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/trace_extension.hpp>
#include <accel_transport/trace.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace accel::core {
namespace {

constexpr const char* example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(traceparent, the_example_of_the_specification_is_read_and_written) {
    const auto read = trace_context::parse(example);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->trace_id[0], 0x4b);
    EXPECT_EQ(read->trace_id[15], 0x36);
    EXPECT_EQ(read->parent_id[1], 0xf0);
    EXPECT_EQ(read->parent_id[7], 0xb7);
    EXPECT_EQ(read->flags, trace_context::sampled);
    EXPECT_EQ(read->format(), example);
}

TEST(traceparent, malformed_text_is_refused) {
    const std::string good = example;
    EXPECT_FALSE(trace_context::parse(""));
    for (std::size_t length = 0; length < good.size(); ++length)
        EXPECT_FALSE(trace_context::parse(good.substr(0, length))) << length;
    EXPECT_FALSE(trace_context::parse(good + "-"));
    EXPECT_FALSE(trace_context::parse(good + "-more")) << "version 00 has no more";
    EXPECT_FALSE(trace_context::parse(" " + good.substr(1)));
    for (const char* version : {"01", "ff", "0f", "  ", "0-"})
        EXPECT_FALSE(trace_context::parse(version + good.substr(2))) << version;
    for (std::size_t i = 0; i < good.size(); ++i) {
        for (const char wrong : {'F', 'g', ' ', '\0', '-'}) {
            std::string changed = good;
            changed[i] = wrong;
            if (changed != good) {
                EXPECT_FALSE(trace_context::parse(changed)) << i << " " << wrong;
            }
        }
    }
    EXPECT_FALSE(trace_context::parse("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01")) << "upper case";
    EXPECT_FALSE(trace_context::parse("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
    EXPECT_FALSE(trace_context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
}

TEST(traceparent, written_text_is_read_again_without_flags_of_later_versions) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 1000; ++i) {
        trace_context made;
        for (auto& byte : made.trace_id) byte = static_cast<std::uint8_t>(random());
        for (auto& byte : made.parent_id) byte = static_cast<std::uint8_t>(random());
        made.flags = static_cast<std::uint8_t>(random());
        std::string text = made.format();
        made.flags &= 3;
        EXPECT_EQ(trace_context::parse(text), made);
        EXPECT_EQ(text.substr(53), fmt::format("{:02x}", made.flags));
        const auto later = static_cast<std::uint8_t>(made.flags | (random() & 0xfc));
        EXPECT_EQ(trace_context::parse(text.substr(0, 53) + fmt::format("{:02x}", later)), made);
    }
}

/// A slot's header, with room in front of it.
struct traced_slot {
    static constexpr std::uint32_t generation = 5;
    traced_slot() { new (header()) slot_header; }
    std::byte* header() { return memory + extension_room; }
    void extend(std::size_t bytes, std::uint32_t of = generation) {
        auto& made = *reinterpret_cast<slot_header*>(header());
        made.generation = of;
        made.extension_bytes = static_cast<std::uint16_t>(bytes);
    }
    /// Has `write_trace` add the example.
    std::uint16_t write(std::uint16_t before = 0, std::size_t others = 0) {
        const std::uint16_t now = write_trace({header(), before, others}, *trace_context::parse(example));
        extend(now);
        return now;
    }
    status read() {
        const auto found = read_trace(header(), generation);
        seen = found ? *found : trace_context{};
        return found.code();
    }
    trace_context seen;
    alignas(64) std::byte memory[extension_room + header_bytes + 64] = {};
};

struct laden_slot : traced_slot {
    status read_again(std::size_t bytes = max_baggage_bytes) {
        const auto found = read_baggage(header(), generation, std::span{room}.first(bytes));
        text = found ? *found : std::string_view{};
        return found.code();
    }

    std::array<char, max_baggage_bytes> room{};
    std::string_view text;
};

/// Tensors, a trace, baggage, an extension that nobody knows, and a response target, for which room is kept: each is
/// there as it was sent if it fits, and left out if not.
TEST(trace_extension, extensions_arrive_together_as_far_as_they_fit) {
    constexpr std::size_t target_bytes = sizeof(wire::response_target_extension);
    std::mt19937 random(1);
    int together = 0;
    for (int i = 0; i < 20'000; ++i) {
        laden_slot sent;
        std::byte payload[64] = {};
        std::uint16_t bytes = 0;
        const std::size_t others = random() % 2 * target_bytes;
        const auto fits = [&](std::size_t more) { return bytes + more + others <= extension_room; };
        const auto add = [&](const auto& extension) {
            bytes = static_cast<std::uint16_t>(bytes + sizeof extension);
            std::memcpy(sent.header() - bytes, &extension, sizeof extension);
        };

        const auto rank = static_cast<std::uint32_t>(random() % 7);
        std::vector<tensor> list(random() % 5, tensor{{}, rank, 0, {}});
        for (tensor& each : list) std::fill_n(each.shape, rank, 1U);
        const bool described = !list.empty() && fits(8 + (list.size() * (12 + 4 * rank) + 7) / 8 * 8);
        if (!list.empty()) {
            EXPECT_EQ(describe_message({sent.header(), payload, false, others}, list, bytes),
                      described ? status::ok : status::unsupported);
        }
        if (random() % 4 == 0 && fits(8)) add(wire::extension_head{999, 0, 0});
        const bool wants_trace = random() % 2 == 0;
        const bool traced = wants_trace && fits(40);
        if (wants_trace) bytes = sent.write(bytes, others);
        const std::string text(random() % (max_baggage_bytes + 2), 'b');
        const bool laden = !text.empty() && text.size() <= max_baggage_bytes && fits(8 + (text.size() + 7) / 8 * 8);
        if (!text.empty()) bytes = write_baggage({sent.header(), bytes, others}, text);
        if (others != 0) add(wire::response_target_extension{});
        sent.extend(bytes);
        ASSERT_LE(bytes, extension_room);

        ASSERT_EQ(sent.read(), traced ? status::ok : status::not_found);
        EXPECT_EQ(sent.seen.valid() ? sent.seen.format() : "", traced ? example : "");
        ASSERT_EQ(sent.read_again(), laden ? status::ok : status::not_found);
        EXPECT_EQ(sent.text, laden ? text : "");
        if (laden) {
            EXPECT_EQ(sent.read_again(text.size() - 1), status::message_too_large);
        }
        std::vector<tensor> tensors(max_tensors);
        const auto read = read_description(sent.header(), traced_slot::generation, payload, false, tensors);
        EXPECT_EQ(read.code(), described ? status::ok : status::unsupported);
        EXPECT_EQ(read ? read->size() : 0, described ? list.size() : 0U);
        wire::response_target target;
        EXPECT_TRUE(wire::find_response_target(sent.header() - bytes, bytes, target));
        EXPECT_EQ(read_trace(sent.header(), traced_slot::generation + 1).code(), status::not_found);
        together += described && traced && laden ? 1 : 0;
    }
    EXPECT_GT(together, 100);
}

TEST(baggage_extension, baggage_of_a_wrong_length_is_refused) {
    for (const std::uint16_t length : {std::uint16_t{0}, std::uint16_t{max_baggage_bytes + 1}}) {
        laden_slot sent;
        const wire::extension_head head{wire::baggage_type, length, 0};
        const std::size_t bytes = sizeof head + (std::size_t{length} + 7) / 8 * 8;
        std::memcpy(sent.header() - bytes, &head, sizeof head);
        sent.extend(bytes);
        EXPECT_EQ(sent.read_again(), status::protocol_error);
    }
}

TEST(trace_extension, malformed_traces_are_refused) {
    traced_slot sent;
    ASSERT_EQ(sent.write(), 40);
    std::byte* const at = sent.header() - 40;
    const auto with = [&](std::size_t offset, std::vector<int> values) {
        (void)sent.write();
        for (std::size_t i = 0; i < values.size(); ++i) at[offset + i] = static_cast<std::byte>(values[i]);
        return sent.read();
    };
    EXPECT_EQ(with(2, {24, 0}), status::protocol_error) << "too short";
    EXPECT_EQ(with(2, {26, 0}), status::protocol_error) << "too long";
    EXPECT_EQ(with(2, {0, 0}), status::protocol_error) << "empty";
    EXPECT_EQ(with(2, {255, 255}), status::protocol_error) << "beyond the message";
    EXPECT_EQ(with(8, std::vector<int>(16, 0)), status::protocol_error) << "no trace";
    EXPECT_EQ(with(24, std::vector<int>(8, 0)), status::protocol_error) << "no parent";
    EXPECT_FALSE(sent.seen.valid()) << "nothing of it is handed out";
    EXPECT_EQ(with(0, {99, 0}), status::not_found) << "another type";
    EXPECT_EQ(with(0, {4, 0}), status::ok);
    for (const std::size_t bytes : {1U, 4U, 7U, 39U, 41U, 200U, 65'528U}) {
        sent.extend(bytes);
        EXPECT_EQ(sent.read(), status::protocol_error) << bytes;
    }
}

}  // namespace
}  // namespace accel::core
