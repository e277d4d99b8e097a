// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Words from and to memory whose alignment is a peer's choice.
namespace accel::examples::digits {

__device__ inline bool holds_words(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory) % sizeof(std::uint32_t) == 0;
}

template <bool Aligned>
__device__ inline std::uint32_t load_word(const unsigned char* at) {
    if constexpr (Aligned) {
        return __ldg(reinterpret_cast<const std::uint32_t*>(at));
    } else {
        return __ldg(at) | std::uint32_t{__ldg(at + 1)} << 8 | std::uint32_t{__ldg(at + 2)} << 16 |
               std::uint32_t{__ldg(at + 3)} << 24;
    }
}

__device__ inline std::uint32_t load_word(const unsigned char* at) {
    return holds_words(at) ? load_word<true>(at) : load_word<false>(at);
}

__device__ inline void store_word(unsigned char* at, std::uint32_t word) {
    if (holds_words(at)) {
        *reinterpret_cast<std::uint32_t*>(at) = word;
        return;
    }
    for (int i = 0; i < 4; ++i) at[i] = static_cast<unsigned char>(word >> (8 * i));
}

}  // namespace accel::examples::digits
