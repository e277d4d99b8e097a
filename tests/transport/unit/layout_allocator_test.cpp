// SPDX-License-Identifier: Apache-2.0
#include "core/layout_allocator.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

TEST(layout_allocator, parts_share_no_line) {
    std::array<std::byte, 2048> memory{};
    layout_allocator parts(memory.data());
    EXPECT_EQ(parts.take<std::byte>(1), memory.data());
    EXPECT_EQ(parts.take<std::byte>(257), memory.data() + 256);
    EXPECT_EQ(parts.take<std::byte>(256), memory.data() + 768);
    EXPECT_EQ(parts.used(), 1024U);
}

TEST(layout_allocator, an_allocator_without_memory_only_adds_up_sizes) {
    layout_allocator sizes(nullptr);
    EXPECT_EQ(sizes.take<std::uint64_t>(33), nullptr);
    EXPECT_EQ(sizes.used(), 512U);
}

}  // namespace
}  // namespace accel::core
