// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/failure.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace accel::examples::digits {

inline constexpr std::size_t magic_bytes = 8;
inline constexpr std::size_t checksum_bytes = 4;

/// CRC-32 as in zlib and IEEE 802.3 (polynomial 0x04C11DB7, reflected).
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes) noexcept;

/// Takes little-endian values from the front of a span; whoever reads checks `remaining` first.
class byte_reader {
  public:
    explicit byte_reader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

    [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size(); }
    [[nodiscard]] std::span<const std::byte> take(std::size_t count) noexcept;
    [[nodiscard]] std::uint32_t take_u32() noexcept;
    [[nodiscard]] float take_float() noexcept;

  private:
    std::span<const std::byte> bytes_;
};

/// Checks magic, version (both at the front) and the CRC-32 in the last four bytes.
[[nodiscard]] failure check_envelope(std::span<const std::byte> file, std::string_view magic,
                                     std::uint32_t version) noexcept;

/// `failure::none` where `actual` is `expected` bytes.
[[nodiscard]] failure check_length(std::size_t actual, std::size_t expected) noexcept;

}  // namespace accel::examples::digits
