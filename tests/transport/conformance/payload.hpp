// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace accel::tests {

/// How the suite reaches bytes that a handler has elsewhere than on the host; set by handler_memory.cpp.
/// `read` and `write` wait for whatever is on its way to or from there.
struct foreign_memory {
    bool (*holds)(const std::byte* bytes) = nullptr;
    void (*read)(std::byte* to, const std::byte* from, std::size_t bytes) = nullptr;
    void (*write)(std::byte* to, const std::byte* from, std::size_t bytes) = nullptr;
};
inline foreign_memory elsewhere;

[[nodiscard]] inline bool is_elsewhere(std::span<const std::byte> bytes) {
    return elsewhere.holds != nullptr && !bytes.empty() && elsewhere.holds(bytes.data());
}

/// A copy of bytes wherever they lie.
[[nodiscard]] inline std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
    std::vector<std::byte> out(bytes.size());
    if (is_elsewhere(bytes))
        elsewhere.read(out.data(), bytes.data(), bytes.size());
    else if (!bytes.empty())
        std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

/// Writes to bytes wherever they lie.
inline void put(std::span<std::byte> to, std::span<const std::byte> from) {
    if (is_elsewhere(to))
        elsewhere.write(to.data(), from.data(), from.size());
    else if (!from.empty())
        std::memcpy(to.data(), from.data(), from.size());
}

/// splitmix64: the next of a well mixed sequence.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
}

/// Between any two places; on the host without an allocation.
inline void copy(std::span<std::byte> to, std::span<const std::byte> from) {
    if (is_elsewhere(to) || is_elsewhere(from)) return put(to, copy_of(from));
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

/// The sequence of `fill`, a piece at a time: sanitizers look at each copy and each comparison.
struct pieces {
    static constexpr std::size_t most = 512;
    std::uint64_t words[most / sizeof(std::uint64_t)];

    /// The first `bytes` (at most `most`) of what follows `word`.
    const std::uint64_t* after(std::uint64_t& word, std::size_t bytes) {
        std::uint64_t last = word;
        std::uint64_t* const end = words + (bytes + sizeof last - 1) / sizeof last;
        for (std::uint64_t* next = words; next != end; ++next) *next = last = mix(last);
        word = last;
        return words;
    }
};

/// Bytes that follow from `seed` alone, so that the other end can check all of them.
inline void fill(std::span<std::byte> out, std::uint64_t seed) {
    if (is_elsewhere(out)) {
        std::vector<std::byte> made(out.size());
        fill(made, seed);
        return put(out, made);
    }
    pieces made;
    for (std::size_t at = 0; at < out.size(); at += pieces::most) {
        const std::size_t bytes = std::min(out.size() - at, pieces::most);
        std::memcpy(out.data() + at, made.after(seed, bytes), bytes);
    }
}

/// The word in which `bytes`, of which `expected` has as many, first differ; their size if in none.
[[nodiscard]] inline std::size_t different_word(std::span<const std::byte> bytes, const std::uint64_t* expected) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof *expected, ++expected)
        if (std::memcmp(bytes.data() + at, expected, std::min(bytes.size() - at, sizeof *expected)) != 0) return at;
    return bytes.size();
}

/// Where `bytes` first differ from what `fill` writes; their size if nowhere.
[[nodiscard]] inline std::size_t first_difference(std::span<const std::byte> bytes, std::uint64_t seed) {
    if (is_elsewhere(bytes)) return first_difference(copy_of(bytes), seed);
    pieces expected;
    for (std::size_t at = 0; at < bytes.size(); at += pieces::most) {
        const auto piece = bytes.subspan(at, std::min(bytes.size() - at, pieces::most));
        const std::uint64_t* words = expected.after(seed, piece.size());
        if (std::memcmp(piece.data(), words, piece.size()) != 0) return at + different_word(piece, words);
    }
    return bytes.size();
}

[[nodiscard]] inline bool matches(std::span<const std::byte> bytes, std::uint64_t seed) {
    return first_difference(bytes, seed) == bytes.size();
}

}  // namespace accel::tests
