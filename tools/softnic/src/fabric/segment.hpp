// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// The bytes that processes share: a header, and one ring for each ordered pair of nodes, mapped when first
/// used.
namespace accel::softnic {

inline constexpr std::uint32_t segment_magic = 0x536f664e;
inline constexpr std::uint32_t segment_version = 5;
inline constexpr int max_nodes = 64;
inline constexpr int max_devices = 4;
inline constexpr std::uint32_t qpn_space = 1u << 16;
inline constexpr std::uint32_t first_qpn = 0x100;
inline constexpr std::uint32_t ring_slots = 128;
/// A node's ring to itself goes round in fewer, so that a packet is still in the L1 cache when it is taken
/// out. With a modelled link, where packets wait in it, it is as long as the others.
inline constexpr std::uint32_t loopback_slots = 8;
/// Of a modelled link: slots that only acknowledgements may use, which pass by the data in front of them.
inline constexpr std::uint32_t express_slots = 16;

/// Single producer, single consumer. The counters only grow, so a process that dies in the middle of anything
/// leaves a ring that the next owner of its place simply goes on with.
struct packet_ring {
    alignas(64) std::atomic<std::uint32_t> head;  ///< producer's
    alignas(64) std::atomic<std::uint32_t> tail;  ///< consumer's
    alignas(64) std::array<packet, ring_slots> slots;
};

struct node_record {
    std::atomic<std::uint32_t> state;  ///< node_state
    std::atomic<std::int32_t> process;
    std::atomic<std::uint64_t> senders;   ///< bit n: node n has mapped its ring to this node
    std::atomic<std::uint32_t> arrivals;  ///< counts commits; futex word of a sleeping receiver
    std::atomic<std::uint32_t> sleeping;
    std::atomic<std::uint32_t> leaving;         ///< its process is about to end
    std::atomic<std::uint64_t> timed_messages;  ///< that came over a modelled link
    std::atomic<std::uint64_t> late_messages;   ///< and of those, too late
    std::atomic<std::uint64_t> lateness_ns;     ///< by which all of them came behind the link's time
    std::atomic<std::uint64_t> threads_ns;      ///< CPU time of the device's threads
    std::atomic<std::uint64_t> helped_ns;       ///< in which the program's own calls did the device's work
};

enum class node_state : std::uint32_t { free, alive, being_reaped };

struct segment_header {
    std::atomic<std::uint32_t> magic;
    std::uint32_t version;
    std::uint64_t configuration;            ///< hash of the device list and the link: all processes must agree
    std::atomic<std::uint64_t> virtual_ns;  ///< deterministic mode with a modelled link: one time for all processes
    std::array<std::atomic<std::uint32_t>, max_devices> next_qpn;
    std::array<node_record, max_nodes> nodes;
    /// Owner of each queue pair number: node + 1, or 0.
    std::array<std::array<std::atomic<std::uint8_t>, qpn_space>, max_devices> owners;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

inline constexpr std::size_t page_bytes = 4096;
inline constexpr std::size_t round_to_page(std::size_t size) {
    return (size + page_bytes - 1) & ~(page_bytes - 1);
}
inline constexpr std::size_t ring_offset(int from, int to) {
    return round_to_page(sizeof(segment_header)) +
           static_cast<std::size_t>(from * max_nodes + to) * round_to_page(sizeof(packet_ring));
}
inline constexpr std::size_t segment_bytes = ring_offset(max_nodes - 1, max_nodes);

}  // namespace accel::softnic
