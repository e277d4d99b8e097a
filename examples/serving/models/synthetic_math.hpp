// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstddef>
#include <cstdint>

/// What a synthetic model answers, for the host and kernels alike: a hash of the whole input, and an output that
/// follows from it. Parts of the input are hashed in any order, by any number of threads, and added.
namespace accel::examples::serving {

inline constexpr std::uint64_t synthetic_key = 0x9e3779b97f4a7c15;

/// Word `at` of `bytes`, little-endian; bytes beyond its end are 0.
ACCEL_HOST_DEVICE inline std::uint64_t synthetic_word(const std::byte* input, std::size_t bytes,
                                                      std::size_t at) noexcept {
    const std::size_t begin = at * sizeof(std::uint64_t);
    const std::size_t left = bytes - begin;
    std::uint64_t word = 0;
    __builtin_memcpy(&word, input + begin, left < sizeof word ? left : sizeof word);
    return word;
}

/// The hash of one word at its place. Sums of them, modulo 2^64, are hashes of parts.
ACCEL_HOST_DEVICE inline std::uint64_t synthetic_part(std::uint64_t word, std::uint64_t at) noexcept {
    const std::uint64_t mixed = (word ^ (at + 1) * synthetic_key) * 0xbf58476d1ce4e5b9;
    return mixed ^ mixed >> 32;
}

ACCEL_HOST_DEVICE constexpr std::size_t synthetic_words(std::size_t bytes) noexcept {
    return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
}

/// The hash of an input: of its length and the sum of its words' parts.
ACCEL_HOST_DEVICE inline std::uint64_t synthetic_hash(std::uint64_t sum, std::size_t bytes) noexcept {
    const std::uint64_t mixed = (sum ^ static_cast<std::uint64_t>(bytes)) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 29;
}

/// Word `at` of the output, little-endian; of a last word of fewer than 8 bytes the first ones.
ACCEL_HOST_DEVICE inline std::uint64_t synthetic_output(std::uint64_t hash, std::uint64_t at) noexcept {
    return hash + at * synthetic_key;
}

}  // namespace accel::examples::serving
