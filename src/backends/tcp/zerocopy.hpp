// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::tcp {

/// Which sends with MSG_ZEROCOPY the OS has not acknowledged yet, by slot. One call sends bytes of one slot.
class zerocopy_ledger {
  public:
    /// Below it, pinning pages costs more than the copy.
    static constexpr std::size_t min_bytes = 64 << 10;
    /// The same of ranges, on average: each pins a page of its own.
    static constexpr std::size_t min_range_bytes = 4 << 10;

    /// Switches the socket to it; stays off where the OS refuses.
    void enable(int fd, std::uint32_t slots);
    /// False also once the OS has told that it copies all the same (as on loopback).
    [[nodiscard]] bool useful() const noexcept { return enabled_ && copied_ < copies_to_give_up; }
    [[nodiscard]] bool full() const noexcept { return next_ - oldest_ >= in_flight_.size(); }
    [[nodiscard]] bool pending() const noexcept { return next_ != oldest_; }
    [[nodiscard]] bool pending(std::uint32_t slot) const noexcept { return enabled_ && counts_[slot] > 0; }

    /// A call with MSG_ZEROCOPY sent some bytes of this slot.
    void sent(std::uint32_t slot) noexcept;
    /// Reads one acknowledgement from the socket's error queue, without blocking; false: there is none.
    /// `[first, last]` is its range for `take`.
    [[nodiscard]] bool read(int fd, std::uint32_t& first, std::uint32_t& last) noexcept;
    /// Acknowledges one call: its slot, or `none` for an unknown one.
    [[nodiscard]] std::uint32_t take(std::uint32_t id) noexcept;
    void forget() noexcept { oldest_ = next_; }

    static constexpr std::uint32_t none = 0xffff'ffff;

  private:
    static constexpr std::uint32_t copies_to_give_up = 16;

    bool enabled_ = false;
    std::uint32_t copied_ = 0;
    std::uint32_t next_ = 0;    ///< the OS numbers the calls of a socket from 0
    std::uint32_t oldest_ = 0;  ///< not acknowledged
    std::array<std::uint32_t, 256> in_flight_{};
    std::vector<std::uint32_t> counts_;
};

}  // namespace accel::tcp
