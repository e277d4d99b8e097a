// SPDX-License-Identifier: Apache-2.0
// Tensors with elements of a C++ type: checked once, when they are made.
#include <accel_transport/tensor_view.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
struct half {
    std::uint16_t bits;
};
struct mislabelled {
    std::uint16_t bits;
};
}  // namespace accel::tests

template <>
struct accel::element_type<accel::tests::half> {
    static constexpr accel::data_type value{accel::type_code::floating, 16, 1};
};
template <>
struct accel::element_type<accel::tests::mislabelled> {
    static constexpr accel::data_type value{accel::type_code::floating, 32, 1};
};

namespace accel::tests {
namespace {

static_assert(element_type<float>::value == data_type{} && element_type<double>::value.bits == 64);
static_assert(element_type<std::int8_t>::value == data_type{type_code::signed_integer, 8, 1});
static_assert(element_type<std::uint64_t>::value == data_type{type_code::unsigned_integer, 64, 1});
static_assert(element_type<bool>::value == data_type{type_code::boolean, 8, 1});
static_assert(tensor_element<const half> && !tensor_element<mislabelled>);
static_assert(!tensor_element<char> && !tensor_element<long double> && !tensor_element<std::byte>);
static_assert(std::is_trivially_copyable_v<tensor_view<float>>);

TEST(tensor_view, packed_tensors_come_back_in_place) {
    std::vector<float> floats(6);
    std::iota(floats.begin(), floats.end(), 1.0F);
    const std::array<half, 3> halves{{{1}, {2}, {3}}};
    alignas(8) std::array<std::byte, 512> payload{};
    const auto packed =
        pack_tensors(payload, tensor_view<float>({2, 3}, floats), tensor_view<const half>({3, 1}, halves));
    ASSERT_TRUE(packed);
    EXPECT_LE(packed->length, payload.size());
    const std::span<std::byte> bytes{payload.data(), packed->length};

    const auto first = tensor_view<float>::from(packed->list[0], bytes);
    ASSERT_TRUE(first);
    EXPECT_TRUE(std::ranges::equal(first->shape(), std::array<std::uint32_t, 2>{2, 3}));
    EXPECT_TRUE(std::ranges::equal(first->elements(), floats));
    first->elements()[0] = 7;
    const auto again = tensor_view<const float>::from(packed->list[0], bytes);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->elements()[0], 7.0F);
    EXPECT_EQ(again->description().offset, packed->list[0].offset);
    const auto second = tensor_view<const half>::from(packed->list[1], bytes);
    ASSERT_TRUE(second);
    EXPECT_EQ(second->elements()[2].bits, 3);

    EXPECT_EQ(tensor_view<std::int32_t>::from(packed->list[0], bytes).code(), status::invalid_argument) << "its type";
    EXPECT_EQ(tensor_view<half>::from(packed->list[1], bytes.first(packed->length - 1)).code(),
              status::invalid_argument)
        << "its end";
    EXPECT_EQ(pack_tensors(bytes.first(packed->length - 1), *first, *second).code(), status::message_too_large);
}

TEST(tensor_view, memory_has_to_be_aligned_for_the_elements) {
    alignas(8) std::array<std::byte, 64> payload{};
    const tensor one = tensor_of<double>({4});
    EXPECT_TRUE(tensor_view<const double>::from(one, payload));
    EXPECT_EQ(tensor_view<const double>::from(one, std::span{payload}.subspan(4)).code(), status::unsupported);
}

TEST(tensor_view, booleans_are_sent_as_they_are_and_read_as_bytes) {
    const std::array<bool, 2> flags{true, false};
    std::array<std::byte, 256> payload{};
    const auto packed = pack_tensors(payload, tensor_view<const bool>({2}, flags));
    ASSERT_TRUE(packed);
    const auto read = tensor_view<const std::uint8_t>::from(packed->list[0], payload);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->elements()[0], 1);
    EXPECT_EQ(tensor_view<const std::int8_t>::from(packed->list[0], payload).code(), status::invalid_argument);
}

TEST(tensor_view, an_empty_tensor_and_one_without_dimensions_have_their_elements) {
    float one = 5;
    EXPECT_EQ(tensor_view<float>({}, {&one, 1}).elements().size(), 1U);
    EXPECT_EQ(size_bytes(tensor_view<float>({}, {&one, 1}).description()), sizeof(float));
    EXPECT_TRUE(tensor_view<float>({3, 0}, {}).elements().empty());
    EXPECT_TRUE(tensor_view<float>{}.elements().empty());
    EXPECT_EQ(size_bytes(tensor_view<float>{}.description()), 0U);
}

using tensor_view_death = ::testing::Test;

TEST_F(tensor_view_death, a_shape_of_another_size_ends_the_process) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::vector<float> floats(6);
    EXPECT_DEATH((tensor_view<float>({2, 4}, floats)), "as many elements as its shape says");
    EXPECT_DEATH((tensor_view<float>({6, 1, 1, 1, 1, 1, 1, 1, 1}, floats)), "as many elements as its shape says");
}

}  // namespace
}  // namespace accel::tests
