// SPDX-License-Identifier: Apache-2.0
#include "dma/atomic.hpp"

namespace accel::softnic {
namespace {

constexpr std::uint32_t word_bytes = 8;

/// Adds field by field: a carry stops at the highest bit of each.
std::uint64_t add_fields(std::uint64_t one, std::uint64_t other, std::uint64_t boundary) {
    if (boundary == 0) return one + other;
    std::uint64_t sum = 0;
    std::uint64_t carry = 0;
    for (std::uint64_t bit = 1; bit != 0; bit <<= 1) {
        const std::uint64_t ones = std::uint64_t{(one & bit) != 0} + std::uint64_t{(other & bit) != 0} + carry;
        if ((ones & 1) != 0) sum |= bit;
        carry = (boundary & bit) != 0 ? 0 : ones >> 1;
    }
    return sum;
}

}  // namespace

std::uint64_t atomic_operation::apply(std::uint64_t before) const {
    if (!compare_swap) return add_fields(before, swap_or_add, boundary);
    if (((before ^ compare) & compare_mask) != 0) return before;
    return (before & ~swap_mask) | (swap_or_add & swap_mask);
}

bool atomic_operation::is_ordinary() const {
    constexpr std::uint64_t all = ~std::uint64_t{0};
    return bytes == word_bytes && (compare_swap ? swap_mask == all && compare_mask == all : boundary == 0);
}

/// Engines know atomics on 8 bytes only. The bytes beside a narrow operand are put back as they were, in the
/// same atomic exchange; an aligned word never reaches into another page.
bool atomic_operation::exchange(dma_engine& engine, std::uint64_t at, std::uint64_t& previous) const {
    constexpr int max_attempts = 1 << 20;
    const std::uint64_t word_at = at & ~std::uint64_t{word_bytes - 1};
    const auto shift = static_cast<std::uint32_t>(at - word_at) * 8;
    const std::uint64_t mask = bytes == word_bytes ? ~std::uint64_t{0} : std::uint64_t{0xffffffff} << shift;
    std::uint64_t word = 0;
    if (!engine.read(&word, word_at, sizeof word)) return false;
    for (int attempt = 0; attempt < max_attempts; ++attempt) {
        previous = (word & mask) >> shift;
        const std::uint64_t wanted = (word & ~mask) | (apply(previous) << shift & mask);
        std::uint64_t found = 0;
        if (!engine.compare_swap(word_at, word, wanted, found)) return false;
        if (found == word) return true;
        word = found;
    }
    return false;
}

bool atomic_operation::execute(dma_engine& engine, std::uint64_t at, std::uint64_t& previous) const {
    if (!is_ordinary()) return exchange(engine, at, previous);
    return compare_swap ? engine.compare_swap(at, compare, swap_or_add, previous)
                        : engine.fetch_add(at, swap_or_add, previous);
}

}  // namespace accel::softnic
