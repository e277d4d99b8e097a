// SPDX-License-Identifier: Apache-2.0
// Metadata in front of a message's header and after its payload.
#include "core/metadata_description.hpp"
#include "core/protocol.hpp"

#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/metadata.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using entries = std::vector<metadata_entry>;

/// A message with a payload, as its slot has it.
struct metadata_slot {
    static constexpr std::uint32_t generation = 5;
    static constexpr std::size_t payload_bytes = 100;
    metadata_slot() { new (header()) slot_header; }
    std::byte* header() { return memory + extension_room; }
    std::byte* payload() { return header() + header_bytes; }
    void extend(std::size_t bytes) {
        auto& made = *reinterpret_cast<slot_header*>(header());
        made.generation = generation;
        made.extension_bytes = static_cast<std::uint16_t>(bytes);
    }
    /// As both ends do. Bytes after the payload.
    std::size_t write(const entries& list, std::uint16_t before = 0, std::size_t others = 0) {
        const std::size_t bytes = metadata_bytes(list);
        const extended_message to{header(), before, others};
        std::uint16_t now = write_metadata(to, list, bytes);
        const bool follows = now == before;
        if (follows) now = write_metadata_after(to, payload() + payload_bytes, list, bytes);
        extend(now);
        return follows ? bytes : 0;
    }
    /// As the receiver does.
    status read(std::size_t length) {
        const std::uint16_t after = metadata_after(header(), generation, length);
        const auto found = after == 0 ? read_metadata(header(), generation, room)
                                      : read_metadata({payload() + length - after, after}, room);
        seen = found ? entries(found->begin(), found->end()) : entries{};
        return found.code();
    }
    metadata_room room;
    entries seen;
    alignas(64) std::byte memory[extension_room + header_bytes + payload_bytes + max_metadata_bytes] = {};
};

/// As they travel, without any check.
std::vector<std::byte> raw(const entries& list) {
    std::vector<std::byte> out;
    const auto put = [&out](const void* from, std::size_t bytes) {
        const auto* first = static_cast<const std::byte*>(from);
        out.insert(out.end(), first, first + bytes);
    };
    for (const metadata_entry& each : list) {
        const std::uint16_t sizes[2] = {static_cast<std::uint16_t>(each.key.size()),
                                        static_cast<std::uint16_t>(each.value.size())};
        put(sizes, sizeof sizes);
        put(each.key.data(), each.key.size());
        put(each.value.data(), each.value.size());
    }
    return out;
}

const std::string longest_key(max_metadata_key_bytes, 'k');
const std::string too_long_key(max_metadata_key_bytes + 1, 'k');
const std::string longest_value(max_metadata_bytes - 5, 'v');
const std::string too_long_value(max_metadata_bytes - 4, 'v');
const std::string huge_value(70'000, 'v');

/// The names of many entries.
struct numbered_entries {
    explicit numbered_entries(std::size_t count) : names(count) {
        for (std::size_t i = 0; i < count; ++i) {
            names[i] = "n" + std::to_string(i);
            list.push_back({names[i], "1"});
        }
    }
    std::vector<std::string> names;
    entries list;
};

TEST(metadata_description, valid_entries_arrive_in_front_of_the_header_or_after_the_payload) {
    const numbered_entries most(max_metadata_entries);
    const entries all_kinds{{"a", ""}, {"x.y_z-0", " ~"}, {longest_key, "v"}, {"raw-bin", {"\0\xff\n", 3}}};
    for (const entries& list : {entries{{"k", longest_value}}, most.list, all_kinds}) {
        metadata_slot sent;
        const std::size_t after = sent.write(list);
        EXPECT_EQ(after == 0, raw(list).size() <= extension_room - 8);
        ASSERT_EQ(sent.read(metadata_slot::payload_bytes + after), status::ok);
        EXPECT_EQ(sent.seen, list);
        EXPECT_EQ(find_metadata(sent.seen, list.back().key), list.back().value);
        EXPECT_FALSE(find_metadata(sent.seen, "absent"));
    }
}

/// Whatever else there is, and with room kept for what the link writes.
TEST(metadata_description, metadata_takes_the_room_that_others_leave) {
    std::mt19937 random(1);
    int beside = 0;
    for (int i = 0; i < 5'000; ++i) {
        metadata_slot sent;
        const std::size_t others = random() % 2 * sizeof(wire::response_target_extension);
        const std::size_t most = extension_room - others - metadata_after_bytes;
        const auto before = static_cast<std::uint16_t>(random() % (most / 8 + 1) * 8);
        if (before > 0) {
            const wire::extension_head unknown{999, static_cast<std::uint16_t>(before - sizeof unknown), 0};
            std::memcpy(sent.header() - before, &unknown, sizeof unknown);
        }
        const std::string value(random() % 200, 'v');
        const entries list{{"key", value}};
        const std::size_t after = sent.write(list, before, others);
        const std::size_t needed = 8 + (raw(list).size() + 7) / 8 * 8;
        EXPECT_EQ(after == 0, before + needed + others <= extension_room);
        EXPECT_LE(read_header(sent.header()).extension_bytes + others, extension_room);
        ASSERT_EQ(sent.read(metadata_slot::payload_bytes + after), status::ok);
        EXPECT_EQ(sent.seen, list);
        beside += after == 0 ? 1 : 0;
    }
    EXPECT_GT(beside, 100);
}

TEST(metadata_description, invalid_entries_are_refused_by_both_ends) {
    const numbered_entries too_many(max_metadata_entries + 1);
    const std::vector<entries> wrong{
        {},
        {{"", "v"}},
        {{too_long_key, "v"}},
        {{"Upper", "v"}},
        {{"space d", "v"}},
        {{"key:", "v"}},
        {{"key", "line\n"}},
        {{"key", "\x7f"}},
        {{"key", "\xc3\xa4"}},
        {{"bin", {"\0", 1}}},
        {{"twice", "1"}, {"other", ""}, {"twice", "2"}},
        {{"k", too_long_value}},
        {{"a", longest_value}, {"b", ""}},
        too_many.list,
    };
    for (const entries& list : wrong) {
        const std::string first = list.empty() ? "none" : std::string{list.front().key};
        EXPECT_EQ(metadata_bytes(list), 0U) << first;
        metadata_room room;
        EXPECT_EQ(read_metadata(raw(list), room).code(), status::protocol_error) << first;
    }
    EXPECT_EQ(metadata_bytes(entries{{"k", huge_value}}), 0U) << "its length has 16 bits";
    EXPECT_GT(metadata_bytes(entries{{"k", longest_value}}), 0U);
}

TEST(metadata_description, truncated_entries_are_refused) {
    const entries list{{"first", "value"}, {"second-bin", "more"}};
    const std::vector<std::byte> whole = raw(list);
    const std::size_t first = raw({list.front()}).size();
    for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
        metadata_room room;
        const bool complete = bytes == first || bytes == whole.size();
        // Of its own size, so that a sanitizer notices a read beyond it.
        const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
        EXPECT_EQ(read_metadata(part, room).code(), complete ? status::ok : status::protocol_error) << bytes;
    }
}

TEST(metadata_description, lengths_that_a_peer_makes_up_take_nothing_off) {
    metadata_slot sent;
    const std::size_t after = sent.write({{"key", longest_value.substr(0, 300)}});
    ASSERT_GT(after, 0U);
    const std::size_t length = metadata_slot::payload_bytes + after;
    const auto with = [&](std::size_t offset, std::uint32_t value, std::size_t bytes = 4) {
        metadata_slot changed = sent;
        std::memcpy(changed.header() - metadata_after_bytes + offset, &value, bytes);
        const std::uint16_t taken = metadata_after(changed.header(), metadata_slot::generation, length);
        EXPECT_EQ(changed.read(length) == status::ok, taken != 0);
        return taken;
    };
    EXPECT_EQ(with(8, static_cast<std::uint32_t>(after)), after);
    for (const std::size_t wrong : {std::size_t{0}, length + 1, max_metadata_bytes + 1, std::size_t{0xffff'ffff}})
        EXPECT_EQ(with(8, static_cast<std::uint32_t>(wrong)), 0) << wrong;
    for (const std::uint32_t wrong : {0U, 3U, 5U, 8U, 9U, 0xffffU}) EXPECT_EQ(with(2, wrong, 2), 0) << wrong;
    EXPECT_EQ(metadata_after(sent.header(), metadata_slot::generation, after - 1), 0) << "longer than the payload";
    EXPECT_EQ(metadata_after(sent.header(), metadata_slot::generation + 1, length), 0) << "of another message";
    EXPECT_EQ(metadata_after(sent.header(), metadata_slot::generation, after), after) << "an empty payload";
    EXPECT_EQ(read_metadata(sent.header(), metadata_slot::generation, sent.room).code(), status::protocol_error)
        << "it was not taken off";
    sent.extend(0);
    EXPECT_EQ(sent.read(length), status::not_found);
}

}  // namespace
}  // namespace accel::core
