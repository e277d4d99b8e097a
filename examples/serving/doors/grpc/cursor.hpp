// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace accel::examples::serving::wire {

using slice = std::span<const std::byte>;

/// A place in bytes that lie in several slices, and how many of them follow. A small value; reads go forward only, and
/// never beyond the end. The slices, and the list of them, have to outlive it.
class cursor {
  public:
    cursor() = default;
    explicit cursor(std::span<const slice> slices) noexcept;

    /// Bytes that follow.
    [[nodiscard]] std::uint64_t size() const noexcept { return left_; }
    /// `part` becomes the next `count` bytes, and the place is behind them. False: there are fewer.
    [[nodiscard]] bool take(std::uint64_t count, cursor& part) noexcept;
    /// Copies the next `to.size()` bytes. False: there are fewer, and nothing was done.
    [[nodiscard]] bool copy(std::span<std::byte> to) noexcept;
    /// A number of up to 10 bytes, 7 bits each. False: it does not end within them, or is beyond 64 bits.
    [[nodiscard]] bool varint(std::uint64_t& to) noexcept;

  private:
    [[nodiscard]] slice rest() const noexcept { return slices_.front().subspan(offset_); }
    void advance(std::size_t count) noexcept;
    void skip_ended() noexcept;

    std::span<const slice> slices_;  ///< the first is the one that holds the place
    std::size_t offset_ = 0;         ///< in the first
    std::uint64_t left_ = 0;
};

/// All of it as a text. False: it is longer than `most` bytes.
[[nodiscard]] bool read_text(cursor from, std::size_t most, std::string& to);

}  // namespace accel::examples::serving::wire
