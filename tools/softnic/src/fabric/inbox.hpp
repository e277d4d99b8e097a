// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/segment.hpp"

#include <array>
#include <bitset>
#include <cstdint>

namespace accel::softnic {

/// Packets of one sender that wait in its ring for the time when a modelled link has brought them. They are taken
/// out in the order of their times: acknowledgements pass by data, one port's packets do not wait for another's.
/// What the sender wrote is read once.
class inbox {
  public:
    struct entry {
        std::uint64_t due_ns = 0;
        std::uint32_t position = 0;  ///< in the ring
        bool passed_port = false;    ///< due_ns says when the receiving port has taken it in
    };

    /// `next`: the position of the oldest packet that is in the ring.
    explicit inbox(std::uint32_t next) : next_(next), tail_(next) {}

    /// Notes what has come since the last call.
    void take_in(const packet_ring& ring, std::uint32_t slots);
    /// The packet that is due first, or null. Valid until the next call of a member.
    [[nodiscard]] entry* earliest();
    /// The one that earliest() found has been taken out. The new end of the ring.
    std::uint32_t release();

  private:
    struct lane {
        std::array<entry, ring_slots> entries;
        std::uint32_t first = 0;
        std::uint32_t count = 0;
    };
    static constexpr std::size_t ports = 8;
    static constexpr std::size_t express_lane = ports;

    std::uint32_t next_;
    std::uint32_t tail_;
    std::size_t chosen_ = 0;
    std::array<lane, ports + 1> lanes_;
    std::bitset<ring_slots> done_;  ///< taken out while older ones still wait
};

}  // namespace accel::softnic
