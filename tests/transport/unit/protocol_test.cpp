// SPDX-License-Identifier: Apache-2.0
#include "core/protocol.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using bytes64 = std::array<std::uint8_t, 64>;

bytes64 bytes_of(const slot_header& h) {
    bytes64 out{};
    std::memcpy(out.data(), &h, sizeof h);
    return out;
}

slot_header request() {
    slot_header h;
    h.slot = 0x0a0b0c0d;
    h.generation = 0x11121314;
    h.length = 0x2122232425262728;
    h.trace_id = 0x3132333435363738;
    return h;
}

/// A value of 0x..0403020100 form read back from its bytes, so that a test names offset and width as the
/// document does.
std::uint64_t at(const bytes64& bytes, std::size_t offset, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) value = value << 8 | bytes[offset + i];
    return value;
}

TEST(slot_header, fields_lie_at_the_documented_offsets) {
    slot_header h = request();
    h.flags = header_flag::fragmented;
    h.code = status::overloaded;
    h.extension_bytes = 0x48;
    h.queue_ticks = 0x51525354;
    h.copy_ticks = 0x61626364;
    h.preprocessing_ticks = 0x71727374;
    h.inference_ticks = 0x81828384;
    const bytes64 b = bytes_of(h);
    EXPECT_EQ(at(b, 0, 1), protocol_version);
    EXPECT_EQ(at(b, 1, 1), 1U) << "a request";
    EXPECT_EQ(at(b, 2, 2), 2U) << "fragmented";
    EXPECT_EQ(at(b, 4, 4), 0x0a0b0c0dU);
    EXPECT_EQ(at(b, 8, 4), 0x11121314U);
    EXPECT_EQ(at(b, 12, 2), 7U) << "overloaded";
    EXPECT_EQ(at(b, 14, 2), 0x48U);
    EXPECT_EQ(at(b, 16, 8), 0x2122232425262728U);
    EXPECT_EQ(at(b, 24, 8), 0x3132333435363738U);
    EXPECT_EQ(at(b, 48, 4), 0x51525354U);
    EXPECT_EQ(at(b, 52, 4), 0x61626364U);
    EXPECT_EQ(at(b, 56, 4), 0x71727374U);
    EXPECT_EQ(at(b, 60, 4), 0x81828384U);
}

TEST(slot_header, a_header_is_read_as_it_was_written_at_any_address) {
    std::array<std::byte, 80> buffer{};
    const bytes64 b = bytes_of(request());
    for (std::size_t shift = 0; shift < 16; ++shift) {
        std::memcpy(buffer.data() + shift, b.data(), b.size());
        EXPECT_EQ(bytes_of(read_header(buffer.data() + shift)), b) << shift;
    }
}

/// The document's rules, each on a line of its own.
status expected_of(const slot_header& h, message_kind kind) {
    const bool more = (h.flags & header_flag::more) != 0;
    const bool parts = (h.flags & header_flag::parts) != 0;
    const bool continues = (h.flags & header_flag::continues) != 0;
    const bool part = (h.flags & header_flag::part) != 0;
    const bool fragmented = (h.flags & header_flag::fragmented) != 0;
    if (h.version != protocol_version) return status::version_mismatch;
    bool good = h.kind == kind;
    good = good && h.flags < 32;
    good = good && !(kind == message_kind::response && (parts || continues || part));
    good = good && !(more && (parts || continues || part)) && !(part && (parts || h.extension_bytes > 0));
    good = good && !(kind == message_kind::request && more && (fragmented || h.length > 0 || h.extension_bytes > 0));
    good = good && h.extension_bytes <= 192 && h.extension_bytes % 8 == 0;
    good = good && static_cast<std::uint16_t>(h.code) < status_count;
    good = good && h.slot < 65'536 && h.length <= std::uint64_t{1} << 30;
    return good ? status::ok : status::protocol_error;
}

/// Fields of any values, most of them next to a limit.
slot_header random_header(std::mt19937& random, message_kind kind) {
    const auto any = [&]<std::size_t Count>(const std::uint64_t(&list)[Count], unsigned often) {
        return random() % often != 0 ? list[0] : list[random() % Count];
    };
    slot_header h;
    h.kind = kind;
    h.generation = 1;
    h.version = static_cast<std::uint8_t>(any({protocol_version, 0, 2, 255}, 20));
    if (random() % 10 == 0) h.kind = static_cast<message_kind>(any({1, 2, 3, 0, 200}, 1));
    h.flags = static_cast<std::uint16_t>(
        any({0, header_flag::fragmented, header_flag::more, header_flag::parts, header_flag::of_parts,
             header_flag::fragmented | header_flag::more, header_flag::fragmented | header_flag::parts,
             header_flag::continues, header_flag::parts | header_flag::continues, header_flag::part,
             header_flag::part | header_flag::continues, header_flag::part | header_flag::parts,
             header_flag::part | header_flag::more, header_flag::fragmented | header_flag::part, 0xffff},
            2));
    if (random() % 10 == 0) h.flags = static_cast<std::uint16_t>(1U << random() % 16);
    h.slot = static_cast<std::uint32_t>(any({3, 0, max_slots - 1, max_slots, 0xffff'ffff}, 3));
    h.length = any({0, 100, max_payload_bytes, max_payload_bytes + 1, ~std::uint64_t{0}}, 2);
    h.extension_bytes = static_cast<std::uint16_t>(any({0, 4, 8, 191, 192, 193, 200, 0xffff}, 3));
    h.code = static_cast<status>(any({0, 1, status_count - 1U, status_count, 0xffff}, 3));
    return h;
}

TEST(header_check, headers_pass_exactly_as_the_rules_say) {
    std::mt19937 random(1);
    int good = 0;
    for (int i = 0; i < 200'000; ++i) {
        const message_kind kind = random() % 2 == 0 ? message_kind::request : message_kind::response;
        const slot_header h = random_header(random, kind);
        const status expected = expected_of(h, kind);
        ASSERT_EQ(check_header(h, kind), expected) << "header " << i;
        good += expected == status::ok ? 1 : 0;
        if (expected != status::ok) continue;
        const bool of_parts = (h.flags & header_flag::of_parts) != 0;
        EXPECT_EQ(is_well_formed(h, kind), !of_parts) << "an end that does not know parts refuses them";
        EXPECT_TRUE(is_well_formed(without_parts(h), kind));
    }
    EXPECT_GT(good, 10'000);
}

/// One field at a time, so that each is known to be the reason.
TEST(header_check, each_field_out_of_range_is_refused) {
    slot_header good;
    good.kind = message_kind::response;
    good.length = 100;
    ASSERT_EQ(check_header(good, message_kind::response), status::ok);
    const auto with = [&](auto change) {
        slot_header h = good;
        change(h);
        return check_header(h, message_kind::response);
    };
    constexpr status refused = status::protocol_error;
    for (const int kind : {0, 1, 3, 200})
        EXPECT_EQ(with([=](auto& h) { h.kind = static_cast<message_kind>(kind); }), refused) << kind;
    for (int bit = 2; bit < 16; ++bit)
        EXPECT_EQ(with([=](auto& h) { h.flags = static_cast<std::uint16_t>(1U << bit); }), refused) << bit;
    for (const std::uint32_t slot : {max_slots, ~0U}) EXPECT_EQ(with([=](auto& h) { h.slot = slot; }), refused);
    for (const std::uint64_t length : {max_payload_bytes + 1, ~std::uint64_t{0}})
        EXPECT_EQ(with([=](auto& h) { h.length = length; }), refused);
    for (const int bytes : {4, 193, 200, 0xffff})
        EXPECT_EQ(with([=](auto& h) { h.extension_bytes = static_cast<std::uint16_t>(bytes); }), refused) << bytes;
    for (const int code : {int{status_count}, 0xffff})
        EXPECT_EQ(with([=](auto& h) { h.code = static_cast<status>(code); }), refused) << code;
}

TEST(fragment_header, fields_lie_at_the_documented_offsets) {
    fragment_header f;
    f.slot = 0x01020304;
    f.generation = 0x05060708;
    f.length = 0x090a0b0c;
    bytes64 b{};
    std::memcpy(b.data(), &f, sizeof f);
    EXPECT_EQ(at(b, 0, 1), protocol_version);
    EXPECT_EQ(at(b, 1, 1), 3U);
    EXPECT_EQ(at(b, 2, 2), 0U);
    EXPECT_EQ(at(b, 4, 4), 0x01020304U);
    EXPECT_EQ(at(b, 8, 4), 0x05060708U);
    EXPECT_EQ(at(b, 12, 4), 0x090a0b0cU);
}

}  // namespace
}  // namespace accel::core
