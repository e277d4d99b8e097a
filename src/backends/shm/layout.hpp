// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/lane.hpp"
#include "core/slot_memory.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

/// The layout of shared memory (docs/protocol.md, "shm").
namespace accel::shm {

inline constexpr std::size_t page_bytes = 4096;

/// A client link's message to its server's link.
struct client_wish {
    std::uint8_t format = 1;
    std::uint8_t maps_gpu_slots = 0;  ///< 1: it can use the slots on a GPU. A server that has none ignores it
    std::array<std::uint8_t, 2> reserved{};
};
static_assert(sizeof(client_wish) == 4);

/// The word of a lane's entry beside its slot, in sessions whose client has mapped slots on a GPU.
namespace entry_flag {
inline constexpr std::uint32_t payload_on_gpu = 1U << 31;
inline constexpr std::uint32_t response_on_gpu = 1U << 30;  ///< requests: the client takes the response from there
inline constexpr std::uint32_t all = payload_on_gpu | response_on_gpu;
}  // namespace entry_flag

/// A word that is odd while its thread sleeps, and another one for each sleep. Its writer is that thread alone.
using sleep_word = std::atomic<std::uint32_t>;

/// The page of a server's poller. Its clients read it.
struct poller_page {
    alignas(64) sleep_word sleep{0};
};
static_assert(sizeof(poller_page) <= page_bytes);

/// The start of a session's segment. The process that fills its slots writes it.
struct segment_head {
    alignas(64) std::atomic<std::uint32_t> closed{0};  ///< 1: an orderly end
    alignas(64) sleep_word sleep{0};                   ///< a client's; a server's is in its `poller_page`
};
static_assert(sizeof(segment_head) == 128);

/// One direction of a session: head, lane, slots.
struct segment_layout {
    segment_layout(std::uint32_t slots, std::size_t capacity) noexcept
        : entries(std::bit_ceil(slots)),
          slots_at((sizeof(segment_head) + entries * sizeof(lane_entry) + page_bytes - 1) / page_bytes * page_bytes),
          stride(core::slot_memory::size_bytes(1, capacity)),
          bytes((slots_at + slots * stride + page_bytes - 1) / page_bytes * page_bytes) {}

    static constexpr std::size_t lane_at = sizeof(segment_head);
    std::uint32_t entries;
    std::size_t slots_at;
    std::size_t stride;
    std::size_t bytes;
};

}  // namespace accel::shm
