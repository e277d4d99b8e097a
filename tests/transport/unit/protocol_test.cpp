// SPDX-License-Identifier: Apache-2.0
#include "core/protocol.hpp"

#include <array>
#include <cstddef>
#include <cstring>

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

TEST(slot_header, a_header_is_read_as_it_was_written) {
    const bytes64 b = bytes_of(request());
    const slot_header h = read_header(reinterpret_cast<const std::byte*>(b.data()));
    EXPECT_EQ(bytes_of(h), b);
}

TEST(slot_header, a_header_is_read_from_any_address) {
    std::array<std::byte, 80> buffer{};
    const slot_header written = request();
    for (std::size_t shift = 0; shift < 16; ++shift) {
        std::memcpy(buffer.data() + shift, &written, sizeof written);
        EXPECT_EQ(read_header(buffer.data() + shift).length, written.length);
    }
}

slot_header good(message_kind kind) {
    slot_header h;
    h.kind = kind;
    h.slot = 3;
    h.generation = 1;
    h.length = 100;
    return h;
}

TEST(header_check, headers_of_a_correct_peer_are_accepted) {
    for (const message_kind kind : {message_kind::request, message_kind::response}) {
        slot_header h = good(kind);
        EXPECT_EQ(check_header(h, kind), status::ok);
        h.length = max_payload_bytes;
        h.slot = max_slots - 1;
        h.extension_bytes = extension_room;
        h.flags = header_flag::fragmented;
        EXPECT_EQ(check_header(h, kind), status::ok);
    }
    slot_header response = good(message_kind::response);
    for (std::uint16_t s = 0; s < status_count; ++s) {
        response.code = static_cast<status>(s);
        EXPECT_EQ(check_header(response, message_kind::response), status::ok);
    }
}

TEST(header_check, parts_have_their_flags) {
    slot_header h = good(message_kind::response);
    h.flags = header_flag::more | header_flag::fragmented;
    EXPECT_EQ(check_header(h, message_kind::response), status::ok);
    EXPECT_FALSE(is_well_formed(h, message_kind::response)) << "who does not know parts refuses them";
    EXPECT_TRUE(is_well_formed(without_parts(h), message_kind::response));

    h = good(message_kind::request);
    h.flags = header_flag::parts | header_flag::fragmented;
    EXPECT_EQ(check_header(h, message_kind::request), status::ok);
    h.flags = header_flag::of_parts;
    EXPECT_EQ(check_header(h, message_kind::request), status::protocol_error);
    h.flags = header_flag::more;
    EXPECT_EQ(check_header(h, message_kind::request), status::protocol_error) << "room has no bytes";
    h.length = 0;
    EXPECT_EQ(check_header(h, message_kind::request), status::ok);
    h.extension_bytes = 8;
    EXPECT_EQ(check_header(h, message_kind::request), status::protocol_error) << "nor extensions";
    h.extension_bytes = 0;
    h.flags = header_flag::more | header_flag::fragmented;
    EXPECT_EQ(check_header(h, message_kind::request), status::protocol_error) << "nor fragments";
}

TEST(header_check, another_version_is_a_version_mismatch) {
    slot_header h = good(message_kind::request);
    for (const int version : {0, 2, 255}) {
        h.version = static_cast<std::uint8_t>(version);
        EXPECT_EQ(check_header(h, message_kind::request), status::version_mismatch);
    }
}

template <class Change>
void expect_violation(Change change) {
    slot_header h = good(message_kind::response);
    change(h);
    EXPECT_EQ(check_header(h, message_kind::response), status::protocol_error);
}

TEST(header_check, each_field_out_of_range_is_refused) {
    expect_violation([](slot_header& h) { h.kind = message_kind::request; });
    expect_violation([](slot_header& h) { h.kind = message_kind::fragment; });
    expect_violation([](slot_header& h) { h.kind = static_cast<message_kind>(0); });
    expect_violation([](slot_header& h) { h.kind = static_cast<message_kind>(200); });
    expect_violation([](slot_header& h) { h.flags = header_flag::parts; });
    expect_violation([](slot_header& h) { h.flags = header_flag::of_parts; });
    for (int bit = 2; bit < 16; ++bit)
        expect_violation([bit](slot_header& h) { h.flags = static_cast<std::uint16_t>(1U << bit); });
    expect_violation([](slot_header& h) { h.slot = max_slots; });
    expect_violation([](slot_header& h) { h.slot = ~0U; });
    expect_violation([](slot_header& h) { h.length = max_payload_bytes + 1; });
    expect_violation([](slot_header& h) { h.length = ~std::uint64_t{0}; });
    expect_violation([](slot_header& h) { h.extension_bytes = extension_room + 8; });
    expect_violation([](slot_header& h) { h.extension_bytes = 0xffff; });
    expect_violation([](slot_header& h) { h.extension_bytes = 4; });
    expect_violation([](slot_header& h) { h.code = static_cast<status>(status_count); });
    expect_violation([](slot_header& h) { h.code = static_cast<status>(0xffff); });
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
