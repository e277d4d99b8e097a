// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// BYTES: each element is a length of 4 bytes, little-endian, and so many bytes. A payload has no such type, so a
/// message says UINT8, of rank 1, with as many elements as there are bytes.
namespace accel::examples::serving::oip {

inline constexpr std::size_t string_length_bytes = 4;

/// How a message describes so many bytes of them.
[[nodiscard]] tensor serialized_strings(std::uint64_t bytes) noexcept;

/// How many elements these bytes are; nothing: an element's length reaches behind their end, or bytes are left over.
[[nodiscard]] std::optional<std::uint64_t> count_strings(std::span<const std::byte> bytes) noexcept;

/// Appends an element.
void append_string(std::vector<std::byte>& to, std::string_view element);

/// The first element, which is taken from `bytes`. Where a peer has changed them since `count_strings`, it is another
/// part of them.
[[nodiscard]] std::string_view take_string(std::span<const std::byte>& bytes) noexcept;

}  // namespace accel::examples::serving::oip
