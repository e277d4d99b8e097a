// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace accel::core {

class region_state;

/// One of the ranges of lent memory that are a message's payload, one behind the other. Never empty.
struct lent_range {
    std::byte* data = nullptr;
    std::size_t size = 0;
    const region_state* region = nullptr;
};

/// A place in a list of ranges. Whoever sends a list in pieces keeps it.
struct range_cursor {
    std::size_t index = 0;   ///< of the range
    std::size_t offset = 0;  ///< in it

    /// Up to `most` bytes from here on, in one piece; the cursor moves behind them. Precondition: not at the end.
    [[nodiscard]] std::span<std::byte> take(std::span<const lent_range> list, std::size_t most) noexcept {
        const lent_range& range = list[index];
        const std::size_t step = std::min(most, range.size - offset);
        std::byte* const from = range.data + offset;
        offset += step;
        if (offset == range.size) *this = {index + 1, 0};
        return {from, step};
    }
    /// Moves on by `count` bytes, which the list has.
    void skip(std::span<const lent_range> list, std::size_t count) noexcept {
        while (count > 0) count -= take(list, count).size();
    }
    /// Copies `count` bytes, which the list has; the cursor moves behind them. Memory of the host only.
    void copy_out(std::span<const lent_range> list, std::byte* to, std::size_t count) noexcept {
        while (count > 0) {
            const std::span<std::byte> piece = take(list, count);
            std::memcpy(to, piece.data(), piece.size());
            to += piece.size();
            count -= piece.size();
        }
    }
    /// The other way: copies `count` bytes into the ranges, which have room for them.
    void copy_in(std::span<const lent_range> list, const std::byte* from, std::size_t count) noexcept {
        while (count > 0) {
            const std::span<std::byte> piece = take(list, count);
            std::memcpy(piece.data(), from, piece.size());
            from += piece.size();
            count -= piece.size();
        }
    }
};

}  // namespace accel::core
