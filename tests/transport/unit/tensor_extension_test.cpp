// SPDX-License-Identifier: Apache-2.0
// Descriptions of tensors in front of a message's header, and when a table takes their place.
#include "unit/described_slot.hpp"

#include <accel_transport/detail/wire/tensor_extension.hpp>

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using bytes = std::vector<std::byte>;

using described::slot;
using described::some;

TEST(tensor_description, a_description_fits_before_the_header_or_becomes_a_table) {
    slot sent;
    std::vector<tensor> read;
    const std::size_t behind = detail::table_bytes(max_tensors);
    for (std::uint32_t rank = 0; rank <= 5; ++rank) {
        for (std::uint32_t count = 1; count <= 20; ++count) {
            const auto list = some(count, rank, behind);
            const std::size_t needed = 8 + (count * (12 + 4 * rank) + 7) / 8 * 8;
            const bool fits = needed <= extension_room;
            EXPECT_EQ(sent.describe(list, false), fits ? status::ok : status::unsupported) << "on a GPU is no table";
            ASSERT_EQ(sent.describe(list), status::ok);
            EXPECT_EQ(sent.extension_bytes(), fits ? needed : 0) << rank << " " << count;
            ASSERT_EQ(sent.read(read), status::ok);
            ASSERT_EQ(read.size(), count);
            EXPECT_EQ(std::memcmp(read.data(), list.data(), count * sizeof(tensor)), 0);
            if (fits) continue;
            std::array<tensor, 20> out;
            EXPECT_EQ(tensors(sent.payload(), out).code(), status::ok) << "as any reader of tables";
            EXPECT_EQ(sent.describe(some(count, rank)), status::invalid_argument) << "no room for one";
        }
    }
}

TEST(tensor_description, four_of_any_rank_fit_and_four_of_rank_six_beside_a_response_target) {
    constexpr std::size_t target = sizeof(wire::response_target_extension);
    const auto with = [](std::uint32_t count, std::uint32_t rank, std::size_t others) {
        slot sent;
        std::vector<tensor> list(count);
        for (tensor& each : list) each = {{}, rank, 0, {1, 1, 1, 1, 1, 1}};
        if (rank == 8)
            for (tensor& each : list) each.shape[6] = each.shape[7] = 1;
        return sent.describe(list, false, others);
    };
    EXPECT_EQ(with(4, 8, 0), status::ok);
    EXPECT_EQ(with(4, 6, target), status::ok);
    EXPECT_EQ(with(4, 8, target), status::unsupported) << "a table on a GPU";
    EXPECT_EQ(with(5, 8, 0), status::unsupported);
}

TEST(tensor_description, a_description_belongs_to_its_message) {
    slot sent;
    ASSERT_EQ(sent.describe(some(1, 2)), status::ok);
    std::vector<tensor> read;
    EXPECT_EQ(sent.read(read, true, slot::generation + 1), status::not_found) << "another message's header";
    EXPECT_EQ(sent.read(read, false, slot::generation + 1), status::unsupported);
    EXPECT_EQ(sent.read(read, false), status::ok) << "the payload is not looked at";
    sent.extend(0);
    EXPECT_EQ(sent.read(read), status::not_found);
}

struct hostile_descriptions : ::testing::Test {
    /// One tensor of rank 1, with a change of its extension: 8 bytes head, 12 bytes entry, 4 bytes size.
    template <class Change>
    status changed(Change change) {
        slot sent;
        EXPECT_EQ(sent.describe(some(1, 1)), status::ok);
        EXPECT_EQ(sent.extension_bytes(), 24);
        change(sent.header() - 24);
        return sent.read(read);
    }
    static void put(std::byte* at, std::uint32_t value) { std::memcpy(at, &value, sizeof value); }
    static void put16(std::byte* at, std::uint16_t value) { std::memcpy(at, &value, sizeof value); }
    std::vector<tensor> read;
};

TEST_F(hostile_descriptions, invalid_descriptions_are_refused) {
    EXPECT_EQ(changed([](std::byte*) {}), status::ok);
    for (const unsigned length : {0U, 1U, 11U, 12U, 15U, 17U, 0xffffU})
        EXPECT_EQ(changed([=](std::byte* at) { put16(at + 2, static_cast<std::uint16_t>(length)); }),
                  status::protocol_error)
            << length;
    for (const std::uint32_t rank : {0U, 2U, 9U, 0x4000'0001U, ~0U})
        EXPECT_EQ(changed([=](std::byte* at) { put(at + 12, rank); }), status::protocol_error) << rank;
    for (const std::uint32_t offset : {2U, 4093U, 4096U, ~0U - 3})
        EXPECT_EQ(changed([=](std::byte* at) { put(at + 16, offset); }), status::protocol_error) << offset;
    for (const std::uint32_t size : {1025U, 0x4000'0000U, ~0U})
        EXPECT_EQ(changed([=](std::byte* at) { put(at + 20, size); }), status::protocol_error) << size;
    EXPECT_EQ(changed([](std::byte* at) { at[8] = std::byte{3}; }), status::protocol_error) << "an opaque handle";
    EXPECT_EQ(changed([](std::byte* at) { at[9] = std::byte{0}; }), status::protocol_error) << "no bits";
    EXPECT_EQ(changed([](std::byte* at) { put16(at + 10, 0); }), status::protocol_error) << "no lanes";
    EXPECT_EQ(changed([](std::byte* at) { put(at + 16, 4092); }), status::ok) << "the last four bytes";
    slot sent;
    for (const std::size_t length : {4U, 200U, 0xfff8U}) {
        sent.extend(length);
        EXPECT_EQ(sent.read(read, false), status::protocol_error) << length << " bytes are beyond their room";
    }
    sent.extend(8);
    put16(sent.header() - 8, wire::tensors_type);
    put16(sent.header() - 6, 0);
    EXPECT_EQ(sent.read(read), status::protocol_error) << "of no tensor";
}

}  // namespace
}  // namespace accel::core
