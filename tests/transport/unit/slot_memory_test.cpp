// SPDX-License-Identifier: Apache-2.0
#include "core/slot_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

TEST(slot_memory, slots_do_not_overlap_and_can_be_written_to_their_last_byte) {
    for (const std::size_t capacity : {0U, 1U, 63U, 64U, 65U, 1001U, 4096U}) {
        const auto made = slot_memory::create(5, capacity);
        ASSERT_TRUE(made) << made.error().message;
        const slot_memory& slots = *made.value();
        EXPECT_EQ(slots.count(), 5U);
        EXPECT_EQ(slots.capacity(), capacity);
        EXPECT_EQ(slots.size_bytes(), slot_memory::size_bytes(5, capacity));
        for (std::uint32_t i = 0; i < slots.count(); ++i) {
            EXPECT_EQ(slots.payload(i), slots.header(i) + header_bytes);
            EXPECT_EQ(slots.room(i).data(), slots.payload(i));
            EXPECT_EQ(slots.room(i).size(), capacity);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slots.header(i)) % 64, 0U);
            const std::byte* begin = slots.base() + i * slots.stride();
            EXPECT_EQ(slots.header(i) - begin, static_cast<std::ptrdiff_t>(extension_room));
            EXPECT_LE(slots.payload(i) + capacity, begin + slots.stride());
            std::ranges::fill(slots.room(i), static_cast<std::byte>(i + 1));
        }
        for (std::uint32_t i = 0; i < slots.count(); ++i)
            for (const std::byte each : slots.room(i)) EXPECT_EQ(each, static_cast<std::byte>(i + 1));
    }
}

TEST(slot_memory, geometries_out_of_range_are_refused) {
    EXPECT_EQ(slot_memory::create(0, 1).code(), status::invalid_argument);
    EXPECT_EQ(slot_memory::create(max_slots + 1, 1).code(), status::invalid_argument);
    EXPECT_EQ(slot_memory::create(1, max_payload_bytes + 1).code(), status::invalid_argument);
}

TEST(slot_memory, an_idle_session_costs_no_memory) {
    // 64 GiB of address space on a machine that may well have less.
    const auto made = slot_memory::create(64, max_payload_bytes);
    if (!made) GTEST_SKIP() << "this system does not overcommit: " << made.error().message;
    made.value()->room(63).back() = std::byte{1};
}

}  // namespace
}  // namespace accel::core
