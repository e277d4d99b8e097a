// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace accel::core {

/// Hands out parts of a block one behind the other; with a null base it only adds up their sizes.
class layout_allocator {
  public:
    explicit layout_allocator(std::byte* base) noexcept : base_(base) {}
    template <class Part>
    Part* take(std::size_t count) noexcept {
        constexpr std::size_t line = 256;  // so that no two parts share one, of a GPU's neither
        const std::size_t at = used_;
        used_ += (count * sizeof(Part) + line - 1) / line * line;
        return base_ == nullptr ? nullptr : reinterpret_cast<Part*>(base_ + at);
    }
    [[nodiscard]] std::size_t used() const noexcept { return used_; }

  private:
    std::byte* base_;
    std::size_t used_ = 0;
};

}  // namespace accel::core
