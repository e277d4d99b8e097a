// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/lent_range.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::core {

/// A list that has been checked.
struct range_list {
    std::span<const lent_range> ranges;  ///< none is empty; neighbours in memory are one
    std::size_t bytes = 0;
    bool on_device = false;  ///< one of them
};

/// The lists of ranges that calls have given, by slot: copies, so that the application may drop its own. A slot's list
/// keeps its memory for the next call, so that only a longer one allocates.
class range_lists {
  public:
    explicit range_lists(std::uint32_t slots) : lists_(slots) {}

    /// Checks the ranges and keeps them, for `of`, until the next call of this slot. On anything but `ok` it has none.
    /// `invalid_argument`: too many, or one is no part of its region; `message_too_large`: more than `most` bytes;
    /// `invalid_state`: memory of the parent process; `out_of_memory`.
    [[nodiscard]] status keep(std::uint32_t slot, std::span<const slice> ranges, std::size_t most) noexcept;
    /// The list that was kept last.
    [[nodiscard]] const range_list& of(std::uint32_t slot) const noexcept { return lists_[slot].kept; }
    /// How often a list has grown.
    [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_; }

  private:
    struct slot_list {
        std::vector<lent_range> memory;
        range_list kept;
    };
    [[nodiscard]] bool make_room(std::vector<lent_range>& list, std::size_t count) noexcept;

    std::vector<slot_list> lists_;
    std::uint64_t allocations_ = 0;
};

}  // namespace accel::core
