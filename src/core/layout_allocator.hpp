// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace accel::core {

/// Allocates parts of a block one after another. With a null base it only adds up their sizes.
class layout_allocator {
  public:
    explicit layout_allocator(std::byte* base) noexcept : base_(base) {}
    template <class Part>
    Part* take(std::size_t count) noexcept {
        constexpr std::size_t line = 256;  // no two parts share a cache line, on a device neither
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
