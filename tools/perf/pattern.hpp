// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace accel::perf {

/// Writes bytes that depend on `seed` and on their place.
void fill_pattern(std::span<std::byte> bytes, std::uint32_t seed) noexcept;

/// Are these the bytes that `fill_pattern` writes.
[[nodiscard]] bool holds_pattern(std::span<const std::byte> bytes, std::uint32_t seed) noexcept;

/// Seed of the response to a request that was filled from `seed`.
[[nodiscard]] constexpr std::uint32_t response_seed(std::uint32_t seed) noexcept {
    return ~seed & 0xff'ffff;
}

}  // namespace accel::perf
