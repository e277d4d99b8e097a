// SPDX-License-Identifier: Apache-2.0
// Traces: as the header `traceparent`, and as an extension of a request.
#include "core/protocol.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"

#include <accel_transport/detail/wire/trace_extension.hpp>
#include <accel_transport/trace.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

TEST(traceparent, flags_of_later_versions_are_not_passed_on) {
    const std::string ids = std::string(example).substr(0, 53);
    EXPECT_EQ(trace_context::parse(ids + "ff")->flags, trace_context::sampled | trace_context::random_id);
    EXPECT_EQ(trace_context::parse(ids + "fc")->flags, 0);
    trace_context made = *trace_context::parse(example);
    made.flags = 0xff;
    EXPECT_EQ(made.format(), ids + "03");
}

TEST(traceparent, written_text_is_read_again) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 1000; ++i) {
        trace_context made;
        for (auto& byte : made.trace_id) byte = static_cast<std::uint8_t>(random());
        for (auto& byte : made.parent_id) byte = static_cast<std::uint8_t>(random());
        made.flags = static_cast<std::uint8_t>(random() % 4);
        EXPECT_EQ(trace_context::parse(made.format()), made);
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
    status read() { return read_trace(header(), generation, seen); }
    trace_context seen;
    alignas(64) std::byte memory[extension_room + header_bytes + 64] = {};
};

TEST(trace_extension, a_trace_arrives_as_it_was_sent) {
    traced_slot sent;
    EXPECT_EQ(sent.write(), 40);
    ASSERT_EQ(sent.read(), status::ok);
    EXPECT_EQ(sent.seen.format(), example);
    EXPECT_EQ(read_trace(sent.header(), traced_slot::generation + 1, sent.seen), status::not_found);
    EXPECT_FALSE(sent.seen.valid()) << "nothing is left of the one before";
    sent.extend(0);
    EXPECT_EQ(sent.read(), status::not_found);
}

TEST(trace_extension, a_trace_is_left_out_where_there_is_no_room) {
    traced_slot sent;
    EXPECT_EQ(sent.write(extension_room - 40), extension_room);
    EXPECT_EQ(sent.write(extension_room - 32), extension_room - 32);
    EXPECT_EQ(sent.write(120, 32), 160);
    EXPECT_EQ(sent.write(128, 32), 128);
}

/// Four tensors of rank 6, and a response target without them.
TEST(trace_extension, a_trace_is_found_beside_tensors) {
    std::vector<tensor> list(4);
    for (tensor& each : list) each = {{}, 6, 0, {1, 1, 1, 1, 1, 1}};
    traced_slot sent;
    std::uint16_t bytes = 0;
    std::byte payload[64] = {};
    ASSERT_EQ(describe_message({sent.header(), payload, true}, list, bytes), status::ok);
    EXPECT_EQ(sent.write(bytes), extension_room);
    ASSERT_EQ(sent.read(), status::ok);
    EXPECT_EQ(sent.seen.format(), example);
    std::vector<tensor> read(max_tensors);
    std::size_t count = 0;
    EXPECT_EQ(read_description(sent.header(), traced_slot::generation, payload, true, read, count), status::ok);
    EXPECT_EQ(count, 4U);
}

struct laden_slot : traced_slot {
    status read_again() { return read_baggage(header(), generation, room, length); }
    [[nodiscard]] std::string_view text() const { return {room.data(), length}; }

    std::array<char, max_baggage_bytes> room{};
    std::size_t length = 0;
};

TEST(baggage_extension, baggage_arrives_beside_a_trace) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{8}, std::size_t{9}, max_baggage_bytes}) {
        laden_slot sent;
        const std::string text(size, 'b');
        const std::uint16_t traced = sent.write();
        const std::uint16_t bytes = write_baggage({sent.header(), traced}, text);
        EXPECT_EQ(bytes, traced + 8 + (size + 7) / 8 * 8);
        sent.extend(bytes);
        ASSERT_EQ(sent.read_again(), status::ok);
        EXPECT_EQ(sent.text(), text);
        EXPECT_EQ(sent.read(), status::ok) << "the trace";
        EXPECT_EQ(
            read_baggage(sent.header(), traced_slot::generation, std::span{sent.room}.first(size - 1), sent.length),
            status::message_too_large);
        EXPECT_EQ(sent.length, size);
    }
}

TEST(baggage_extension, baggage_is_left_out_where_there_is_no_room) {
    laden_slot sent;
    const auto write = [&](std::uint16_t before, std::size_t others, std::size_t size) {
        return write_baggage({sent.header(), before, others}, std::string(size, 'b'));
    };
    EXPECT_EQ(write(0, 0, max_baggage_bytes + 1), 0);
    EXPECT_EQ(write(40, 0, max_baggage_bytes), extension_room);
    EXPECT_EQ(write(48, 0, max_baggage_bytes), 48);
    EXPECT_EQ(write(48, 0, max_baggage_bytes - 8), extension_room);
    EXPECT_EQ(write(40, 8, max_baggage_bytes), 40);
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

TEST(trace_extension, random_bytes_are_a_trace_or_refused) {
    std::mt19937_64 random(3);
    traced_slot sent;
    int found = 0;
    for (int i = 0; i < 100'000; ++i) {
        for (std::size_t at = 0; at < extension_room; ++at) sent.memory[at] = static_cast<std::byte>(random() % 5 * 8);
        sent.extend(random() % 25 * 8);
        std::byte* const head = sent.header() - random() % 12 * 8 - 8;
        if (i % 2 == 0) {
            const wire::extension_head made{wire::trace_type, 25, 0};
            std::memcpy(head, &made, sizeof made);
        }
        const status seen = sent.read();
        ASSERT_TRUE(seen == status::ok || seen == status::not_found || seen == status::protocol_error);
        ASSERT_EQ(seen == status::ok, sent.seen.valid());
        found += seen == status::ok ? 1 : 0;
    }
    EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace accel::core
