// SPDX-License-Identifier: Apache-2.0
// Tables of tensors, as a correct peer writes them and as no correct peer does.
#include <accel_transport/tensor.hpp>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace accel {
namespace {

constexpr data_type float32{};
constexpr data_type float16{type_code::floating, 16, 1};
constexpr data_type int4{type_code::signed_integer, 4, 1};
constexpr data_type complex128{type_code::complex, 128, 1};

tensor made(data_type type, std::initializer_list<std::uint32_t> shape) {
    tensor out;
    out.type = type;
    for (const std::uint32_t each : shape) out.shape[out.rank++] = each;
    return out;
}

/// A described payload of two tensors.
struct payload {
    payload() {
        bytes.resize(place_tensors(list));
        EXPECT_EQ(describe(bytes, list), status::ok);
    }
    /// The status of reading it, after a change of the second tensor in the table.
    template <class Change>
    [[nodiscard]] status changed(Change change) const {
        std::vector<std::byte> copy = bytes;
        if (copy.size() < 112) return status::again;  // never; the compiler asks for it
        tensor one;
        std::byte* const at = copy.data() + 16 + sizeof one;
        std::memcpy(&one, at, sizeof one);
        change(one);
        std::memcpy(at, &one, sizeof one);
        return read(copy);
    }
    [[nodiscard]] static status read(std::span<const std::byte> from) {
        std::array<tensor, 4> out;
        std::size_t count = 0;
        return tensors(from, out, count);
    }
    std::array<tensor, 2> list{made(float32, {1, 3, 224, 224}), made(float16, {10})};
    std::vector<std::byte> bytes;
};

TEST(tensor_table, a_table_is_read_as_it_was_written) {
    payload sent;
    std::array<tensor, 4> out;
    std::size_t count = 0;
    ASSERT_EQ(tensors(sent.bytes, out, count), status::ok);
    ASSERT_EQ(count, 2U);
    EXPECT_EQ(out[0].type, float32);
    EXPECT_EQ(out[0].rank, 4U);
    EXPECT_EQ(out[0].shape[3], 224U);
    EXPECT_EQ(size_bytes(out[0]), 3U * 224 * 224 * 4);
    EXPECT_EQ(out[1].type, float16);
    EXPECT_EQ(bytes_of(out[1], std::span<const std::byte>{sent.bytes}).size(), 20U);
    EXPECT_EQ(out[1].offset % 64, 0U);
    EXPECT_GE(out[1].offset, out[0].offset + size_bytes(out[0]));
    EXPECT_EQ(sent.bytes.size(), out[1].offset + 20) << "nothing behind the last one";
}

TEST(tensor_table, sizes_follow_from_type_and_shape) {
    EXPECT_EQ(size_bytes(made(float32, {})), 4U) << "a single number";
    EXPECT_EQ(size_bytes(made(float32, {5, 0, 7})), 0U);
    EXPECT_EQ(size_bytes(made(int4, {3})), 2U) << "packed, and the last byte is half full";
    EXPECT_EQ(size_bytes(made({type_code::boolean, 1, 1}, {9})), 2U);
    EXPECT_EQ(size_bytes(made({type_code::floating, 16, 8}, {2})), 32U) << "vectors of 8";
    EXPECT_EQ(size_bytes(made(complex128, {2})), 32U);
    EXPECT_EQ(size_bytes(made({type_code::float6_e2m3fn, 6, 1}, {4})), 3U);
}

TEST(tensor_table, a_reader_with_too_little_room_learns_the_number_of_tensors) {
    payload sent;
    std::array<tensor, 1> out;
    std::size_t count = 0;
    EXPECT_EQ(tensors(sent.bytes, out, count), status::message_too_large);
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(tensors(sent.bytes, {}, count), status::message_too_large);
}

TEST(tensor_table, a_table_holds_any_number_of_tensors_up_to_the_limit) {
    for (const std::size_t number : {std::size_t{1}, std::size_t{5}, std::size_t{max_tensors}}) {
        std::vector<tensor> list(number, made(float32, {2}));
        std::vector<std::byte> bytes(place_tensors(list));
        ASSERT_EQ(describe(bytes, list), status::ok);
        std::vector<tensor> out(number);
        std::size_t count = 0;
        ASSERT_EQ(tensors(bytes, out, count), status::ok);
        EXPECT_EQ(count, number);
    }
    std::vector<tensor> many(max_tensors + 1, made(float32, {2}));
    std::vector<std::byte> bytes(100'000);
    EXPECT_EQ(place_tensors(many), 0U);
    EXPECT_EQ(describe(bytes, many), status::invalid_argument);
    EXPECT_EQ(describe(bytes, {}), status::invalid_argument);
    EXPECT_EQ(place_tensors(std::span<tensor>{}), 0U);
}

TEST(tensor_table, hostile_tensors_are_refused) {
    const payload sent;
    const auto all = static_cast<std::uint64_t>(sent.bytes.size());
    EXPECT_EQ(sent.changed([](tensor&) {}), status::ok);
    EXPECT_EQ(sent.changed([](tensor& t) { t.rank = 9; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.rank = ~0U; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.rank = 0; }), status::protocol_error) << "a size that does not count";
    EXPECT_EQ(sent.changed([](tensor& t) { t.shape[7] = 1; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.shape[0] = 11; }), status::protocol_error) << "one element too many";
    EXPECT_EQ(sent.changed([](tensor& t) { t.shape[0] = ~0U; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.type.bits = 0; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.type.lanes = 0; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.type.lanes = 0xffff; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.type.code = type_code::opaque_handle; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.type.code = type_code{200}; }), status::ok) << "a code of the future";
    EXPECT_EQ(sent.changed([](tensor& t) { t.offset = 0; }), status::protocol_error) << "on the table";
    EXPECT_EQ(sent.changed([](tensor& t) { t.offset = 110; }), status::protocol_error) << "on its last bytes";
    EXPECT_EQ(sent.changed([](tensor& t) { t.offset = 112; }), status::ok) << "right behind it, on the other tensor";
    EXPECT_EQ(sent.changed([](tensor& t) { t.offset += 1; }), status::protocol_error) << "odd, for 16 bits";
    EXPECT_EQ(sent.changed([&](tensor& t) { t.offset = all; }), status::protocol_error);
    EXPECT_EQ(sent.changed([&](tensor& t) { t.offset = all - 18; }), status::protocol_error);
    EXPECT_EQ(sent.changed([](tensor& t) { t.offset = ~std::uint64_t{0} - 1; }), status::protocol_error);
    EXPECT_EQ(sent.changed([&](tensor& t) {
        t.offset = all;
        t.shape[0] = 0;
    }),
              status::ok)
        << "nothing, at the very end";
}

/// Products that wrap to something small.
TEST(tensor_table, products_of_shapes_cannot_overflow) {
    const payload sent;
    const auto of = [&](std::initializer_list<std::uint32_t> shape) {
        return sent.changed([&](tensor& t) {
            t.rank = 0;
            for (std::uint32_t& each : t.shape) each = 0;
            for (const std::uint32_t each : shape) t.shape[t.rank++] = each;
        });
    };
    EXPECT_EQ(of({1U << 16, 1U << 16, 1U << 16, 1U << 16}), status::protocol_error) << "2^64 elements";
    EXPECT_EQ(of({1U << 31, 1U << 31, 4}), status::protocol_error);
    EXPECT_EQ(of({~0U, ~0U, ~0U, ~0U, ~0U, ~0U, ~0U, ~0U}), status::protocol_error);
    EXPECT_EQ(of({1U << 30, 1U << 30}), status::protocol_error) << "2^60 elements of 16 bits";
    EXPECT_EQ(of({~0U, ~0U, 0}), status::ok) << "nothing at all";
    EXPECT_EQ(of({0, ~0U, ~0U, ~0U, ~0U}), status::ok);
}

TEST(tensor_table, hostile_tables_are_refused) {
    const payload sent;
    for (std::size_t length = 0; length < sent.bytes.size(); length += length < 200 ? 1 : 1'000)
        EXPECT_EQ(payload::read(std::span{sent.bytes}.first(length)), status::protocol_error) << length;
    const auto with = [&](std::size_t at, std::uint8_t value) {
        std::vector<std::byte> copy = sent.bytes;
        copy[at] = std::byte{value};
        return payload::read(copy);
    };
    EXPECT_EQ(with(0, 'B'), status::protocol_error) << "no table";
    EXPECT_EQ(with(4, 2), status::protocol_error) << "another format";
    EXPECT_EQ(with(6, 0), status::protocol_error) << "none";
    EXPECT_EQ(with(6, 65), status::protocol_error) << "too many";
    EXPECT_EQ(with(7, 1), status::protocol_error);
    EXPECT_EQ(with(8, 1), status::protocol_error) << "reserved";
    EXPECT_EQ(with(15, 1), status::protocol_error) << "reserved";
    EXPECT_EQ(with(6, 3), status::protocol_error) << "the third is what lies behind the table";
}

TEST(tensor_table, a_table_that_the_peer_would_refuse_is_not_written) {
    payload sent;
    const std::vector<std::byte> before = sent.bytes;
    std::array<tensor, 2> wrong = sent.list;
    wrong[1].offset = sent.bytes.size() - 18;
    EXPECT_EQ(describe(sent.bytes, wrong), status::invalid_argument);
    wrong = sent.list;
    wrong[0].offset = 0;
    EXPECT_EQ(describe(sent.bytes, wrong), status::invalid_argument);
    wrong = sent.list;
    wrong[0].type.bits = 0;
    EXPECT_EQ(describe(sent.bytes, wrong), status::invalid_argument);
    EXPECT_EQ(place_tensors(wrong), 0U);
    EXPECT_EQ(describe(std::span{sent.bytes}.first(20), sent.list), status::invalid_argument);
    EXPECT_EQ(sent.bytes, before) << "nothing was written";
}

TEST(tensor_table, alignment_is_that_of_the_element_and_at_most_8) {
    EXPECT_EQ(detail::alignment_of(complex128), 8U);
    EXPECT_EQ(detail::alignment_of(float32), 4U);
    EXPECT_EQ(detail::alignment_of(int4), 1U);
    EXPECT_EQ(detail::alignment_of({type_code::floating, 24, 1}), 1U) << "no power of two";
    EXPECT_EQ(detail::alignment_of({type_code::floating, 255, 1}), 8U);
}

}  // namespace
}  // namespace accel
