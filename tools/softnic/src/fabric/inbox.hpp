// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/segment.hpp"

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>

namespace accel::softnic {

class dma_engine;

/// Where a payload has been written before its packet is delivered.
struct placement {
    std::shared_ptr<dma_engine> engine;  ///< null: nowhere yet
    std::uint64_t address = 0;           ///< the engine's
    std::uint64_t mark = 0;              ///< the engine's name for the write
    bool early = false;                  ///< before the packet was due
    bool awaited = false;                ///< the packet is delivered when it is in memory
};

/// Packets of one sender that wait in its ring for the time when a modelled link has brought them. They are taken
/// out in the order of their times: acknowledgements pass by data, one port's packets do not wait for another's.
/// When they are due is read once.
class inbox {
    static constexpr std::size_t ports = 8;
    static constexpr std::size_t express_lane = ports;

  public:
    struct entry {
        std::uint64_t due_ns = 0;
        std::uint32_t position = 0;  ///< in the ring
        bool passed_port = false;    ///< due_ns says when the receiving port has taken it in
        std::uint8_t sender = 0;
        std::uint8_t lane = 0;
        placement placed;

        [[nodiscard]] bool express() const { return lane == express_lane; }  ///< an acknowledgement
    };
    /// What was done for a packet ahead of its time. `passed_over`: perhaps after one before it is delivered; `later`:
    /// not now, and neither for those behind it.
    enum class look : std::uint8_t { done, passed_over, later };

    /// `next`: the position of the oldest packet that is in the ring.
    inbox(std::uint32_t next, int sender) : next_(next), tail_(next), sender_(static_cast<std::uint8_t>(sender)) {}

    /// Notes what has come since the last call.
    void take_in(const packet_ring& ring, std::uint32_t slots);
    /// The packet that is due first, or null. Valid until the next call of a member.
    [[nodiscard]] entry* earliest();
    /// Takes the one that earliest() found out of the line. It stays in the ring until release().
    entry take();
    /// The new end of the ring. `at_edge`: the first or last packet of a message.
    std::uint32_t release(const entry& taken, bool at_edge);
    /// Calls visit(entry), which returns a `look`, once for each waiting packet but acknowledgements; and again for
    /// those that were passed over, when a packet at an edge has gone that had not been written early. True: for one.
    template <class Visit>
    bool look_ahead(Visit visit) {
        bool any = false;
        for (lane& each : lanes_) {
            if (&each == &lanes_[express_lane]) continue;
            for (; each.looked < each.count; ++each.looked) {
                const look seen = visit(each.entries[(each.first + each.looked) % ring_slots]);
                if (seen == look::later) break;
                each.passed_over |= seen == look::passed_over;
                any = true;
            }
        }
        return any;
    }

  private:
    struct lane {
        std::array<entry, ring_slots> entries;
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        std::uint32_t looked = 0;  ///< how many of them look_ahead() has been at
        bool passed_over = false;
    };
    std::uint32_t next_;
    std::uint32_t tail_;
    std::uint8_t sender_;
    std::size_t chosen_ = 0;
    std::array<lane, ports + 1> lanes_;
    std::bitset<ring_slots> done_;  ///< taken out while older ones still wait
};

}  // namespace accel::softnic
