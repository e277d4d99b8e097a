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
        return tensors(from, out).code();
    }
    std::array<tensor, 2> list{made(float32, {1, 3, 224, 224}), made(float16, {10})};
    std::vector<std::byte> bytes;
};

/// A tensor of any type and a shape of at most a few thousand elements, and its bytes.
tensor random_tensor(std::mt19937& random, std::uint64_t& bytes) {
    constexpr data_type types[] = {float32,
                                   float16,
                                   int4,
                                   complex128,
                                   {type_code::boolean, 1, 1},
                                   {type_code::floating, 16, 8},
                                   {type_code::float6_e2m3fn, 6, 1},
                                   {type_code{200}, 24, 3}};
    tensor out;
    out.type = types[random() % std::size(types)];
    out.rank = static_cast<std::uint32_t>(random() % (max_tensor_rank + 1));
    std::uint64_t elements = 1;
    for (std::uint32_t i = 0; i < out.rank; ++i) {
        out.shape[i] = random() % 20 == 0 ? 0 : 1 + static_cast<std::uint32_t>(random() % 3);
        elements *= out.shape[i];
    }
    bytes = (elements * out.type.bits * out.type.lanes + 7) / 8;
    return out;
}

TEST(tensor_table, a_table_is_read_as_it_was_written_by_readers_with_room) {
    std::mt19937 random(1);
    for (int round = 0; round < 2'000; ++round) {
        std::vector<tensor> list(round < 64 ? static_cast<std::size_t>(round + 1) : 1 + random() % 5);
        std::uint64_t end = 16 + 48 * list.size();
        for (tensor& each : list) {
            std::uint64_t bytes = 0;
            each = random_tensor(random, bytes);
            ASSERT_EQ(size_bytes(each), bytes);
            end = (end + 63) / 64 * 64 + bytes;
        }
        std::vector<std::byte> payload(place_tensors(list));
        ASSERT_EQ(payload.size(), end) << "each at the next multiple of 64, and nothing after the last one";
        ASSERT_EQ(describe(payload, list), status::ok);
        std::vector<tensor> out(random() % 4 == 0 ? random() % list.size() : list.size() + random() % 3);
        const bool fits = out.size() >= list.size();
        const auto read = tensors(payload, out);
        ASSERT_EQ(read.code(), fits ? status::ok : status::message_too_large);
        if (!fits) continue;
        ASSERT_EQ(read->size(), list.size());
        ASSERT_EQ(std::memcmp(out.data(), list.data(), list.size() * sizeof(tensor)), 0);
        for (const tensor& each : list) {
            const auto bytes = bytes_of(each, std::span<const std::byte>{payload});
            ASSERT_EQ(bytes.data(), payload.data() + each.offset);
            ASSERT_EQ(bytes.size(), size_bytes(each));
        }
    }
}

TEST(tensor_table, sizes_and_alignments_follow_from_type_and_shape) {
    struct row {
        const char* what;
        tensor of;
        std::uint64_t size;
        std::uint64_t alignment;  ///< that of the element, and at most 8
    };
    const row all[] = {
        {"a single number", made(float32, {}), 4, 4},
        {"nothing", made(float32, {5, 0, 7}), 0, 4},
        {"packed, and the last byte is half full", made(int4, {3}), 2, 1},
        {"bits", made({type_code::boolean, 1, 1}, {9}), 2, 1},
        {"vectors of 8", made({type_code::floating, 16, 8}, {2}), 32, 2},
        {"16 bytes", made(complex128, {2}), 32, 8},
        {"6 bits", made({type_code::float6_e2m3fn, 6, 1}, {4}), 3, 1},
        {"no power of two", made({type_code::floating, 24, 1}, {5}), 15, 1},
        {"255 bits", made({type_code::floating, 255, 1}, {8}), 255, 8},
    };
    for (const row& each : all) {
        EXPECT_EQ(size_bytes(each.of), each.size) << each.what;
        EXPECT_EQ(detail::alignment_of(each.of.type), each.alignment) << each.what;
    }
}

TEST(tensor_table, lists_of_no_tensor_and_of_too_many_are_refused) {
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

}  // namespace
}  // namespace accel
