// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::core {

/// Turns a counter of ticks into nanoseconds of another clock, for 0.2 ms from the last reading of both. What it tells
/// never goes back, and is at most a few nanoseconds late while both run evenly.
class tick_scale {
  public:
    /// False: both have not been read for long enough.
    [[nodiscard]] bool known() const noexcept { return span_ != 0; }
    [[nodiscard]] std::uint64_t passed_at(std::uint64_t ticks) const noexcept { return ticks - ticks_; }
    [[nodiscard]] bool holds_for(std::uint64_t passed) const noexcept { return passed < span_; }
    [[nodiscard]] std::int64_t nanoseconds_after(std::uint64_t passed) const noexcept {
        return nanoseconds_ + static_cast<std::int64_t>(passed * scale_ >> 32);
    }

    /// Both clocks have been read at once. Returns the time to tell.
    std::int64_t set(std::uint64_t ticks, std::int64_t nanoseconds) noexcept;
    /// The later of `nanoseconds` and all that was told.
    [[nodiscard]] std::int64_t not_before(std::int64_t nanoseconds) const noexcept;

  private:
    void measure(std::uint64_t ticks, std::int64_t nanoseconds) noexcept;

    std::uint64_t ticks_ = 0;
    std::int64_t nanoseconds_ = 0;
    std::uint64_t scale_ = 0;  ///< nanoseconds of 2^32 ticks
    std::uint64_t span_ = 0;   ///< ticks for which the scale holds
    // When the scale began to be measured.
    std::uint64_t first_ticks_ = 0;
    std::int64_t first_nanoseconds_ = 0;
};

}  // namespace accel::core
