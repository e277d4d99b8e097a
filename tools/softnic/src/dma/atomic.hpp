// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"

#include <cstdint>

namespace accel::softnic {

/// What an atomic request does to 4 or 8 bytes. An ordinary one is a masked one whose masks select every bit,
/// or without boundaries.
struct atomic_operation {
    bool compare_swap = false;
    std::uint32_t bytes = 8;
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;
    std::uint64_t swap_mask = ~std::uint64_t{0};     ///< compare and swap: bits that are replaced
    std::uint64_t compare_mask = ~std::uint64_t{0};  ///< compare and swap: bits that must be equal
    std::uint64_t boundary = 0;  ///< fetch and add: each bit is the highest of a field that is added alone

    /// The value that takes the place of `before`.
    [[nodiscard]] std::uint64_t apply(std::uint64_t before) const;
    /// Carries it out at a multiple of `bytes`. False if the memory cannot be reached.
    [[nodiscard]] bool execute(dma_engine& engine, std::uint64_t at, std::uint64_t& previous) const;

  private:
    [[nodiscard]] bool is_ordinary() const;
    [[nodiscard]] bool exchange(dma_engine& engine, std::uint64_t at, std::uint64_t& previous) const;
};

}  // namespace accel::softnic
