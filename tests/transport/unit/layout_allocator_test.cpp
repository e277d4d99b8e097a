// SPDX-License-Identifier: Apache-2.0
#include "core/layout_allocator.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

alignas(256) std::array<std::byte, 256 << 10> memory{};

template <class Part>
void expect_apart(layout_allocator& parts, layout_allocator& sizes, std::size_t count) {
    const std::size_t begin = parts.used();
    EXPECT_EQ(begin % 256, 0U);
    EXPECT_EQ(parts.take<Part>(count), reinterpret_cast<Part*>(memory.data() + begin));
    EXPECT_GE(parts.used(), begin + count * sizeof(Part));
    EXPECT_LT(parts.used(), begin + count * sizeof(Part) + 256) << "none is left between them";
    EXPECT_EQ(sizes.take<Part>(count), nullptr);
    EXPECT_EQ(sizes.used(), parts.used());
}

TEST(layout_allocator, parts_share_no_line_and_their_sizes_add_up_without_memory) {
    std::mt19937 random(1);
    layout_allocator parts(memory.data());
    layout_allocator sizes(nullptr);
    for (const std::size_t count : {1U, 255U, 256U, 257U}) expect_apart<std::byte>(parts, sizes, count);
    for (int i = 0; i < 100; ++i) {
        expect_apart<std::byte>(parts, sizes, random() % 600);
        expect_apart<std::uint64_t>(parts, sizes, random() % 70);
    }
}

}  // namespace
}  // namespace accel::core
