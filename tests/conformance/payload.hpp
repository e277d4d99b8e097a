#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace accel::tests {

/// splitmix64: the next of a well mixed sequence.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
}

/// Bytes that follow from `seed` alone, so that the other end can check all of them.
inline void fill(std::span<std::byte> out, std::uint64_t seed) noexcept {
    std::uint64_t word = seed;
    for (std::size_t at = 0; at < out.size(); at += sizeof word) {
        word = mix(word);
        const std::size_t left = out.size() - at;
        std::memcpy(out.data() + at, &word, left < sizeof word ? left : sizeof word);
    }
}

/// Where `bytes` first differ from what `fill` writes; their size if nowhere.
[[nodiscard]] inline std::size_t first_difference(std::span<const std::byte> bytes,
                                                  std::uint64_t seed) noexcept {
    std::uint64_t word = seed;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof word) {
        word = mix(word);
        const std::size_t left = bytes.size() - at;
        if (std::memcmp(bytes.data() + at, &word, left < sizeof word ? left : sizeof word) != 0) return at;
    }
    return bytes.size();
}

[[nodiscard]] inline bool matches(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
    return first_difference(bytes, seed) == bytes.size();
}

}  // namespace accel::tests
