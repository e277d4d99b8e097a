// SPDX-License-Identifier: Apache-2.0
#include "perf/pattern.hpp"

#include <algorithm>
#include <cstring>

namespace accel::perf {
namespace {

/// The finalizer of SplitMix64 (Steele et al., 2014) over place and seed.
std::uint64_t word(std::uint32_t seed, std::size_t place) noexcept {
    std::uint64_t z = (std::uint64_t{seed} << 40) + 0x9e37'79b9'7f4a'7c15 * (place + 1);
    z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
    return z ^ (z >> 31);
}

constexpr std::size_t word_bytes = sizeof(std::uint64_t);

}  // namespace

void fill_pattern(std::span<std::byte> bytes, std::uint32_t seed) noexcept {
    for (std::size_t at = 0; at < bytes.size(); at += word_bytes) {
        const std::uint64_t value = word(seed, at);
        std::memcpy(bytes.data() + at, &value, std::min(word_bytes, bytes.size() - at));
    }
}

bool holds_pattern(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
    for (std::size_t at = 0; at < bytes.size(); at += word_bytes) {
        const std::uint64_t value = word(seed, at);
        if (std::memcmp(bytes.data() + at, &value, std::min(word_bytes, bytes.size() - at)) != 0) return false;
    }
    return true;
}

}  // namespace accel::perf
