// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/trace_description.hpp"

#include <accel_transport/metadata.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// The metadata of a message: in an extension of its header, or after its payload. The same at both ends.
namespace accel::core {

inline constexpr std::uint16_t metadata_type = 6;  ///< its value is entries
inline constexpr std::uint16_t metadata_after_type =
    7;  ///< its value says how many bytes of entries follow the payload
/// Of the room for extensions: enough to say that metadata follows the payload.
inline constexpr std::size_t metadata_after_bytes = 16;

/// Bytes of the entries as they travel. 0: they are not valid, or there are none.
[[nodiscard]] std::size_t metadata_bytes(std::span<const metadata_entry> list) noexcept;

/// Writes valid entries, of `bytes` in all, in front of the extensions. Returns the new size of all extensions in
/// bytes; the old size if the entries do not fit.
[[nodiscard]] std::uint16_t write_metadata(const extended_message& message, std::span<const metadata_entry> list,
                                           std::size_t bytes) noexcept;
/// Writes them to `payload_end` instead. Precondition: the message has room for `metadata_after_bytes`.
[[nodiscard]] std::uint16_t write_metadata_after(const extended_message& message, std::byte* payload_end,
                                                 std::span<const metadata_entry> list, std::size_t bytes) noexcept;

/// How many of the last `payload_bytes` of the message of that generation are metadata; 0 also if its extensions are
/// not what a correct peer sends.
[[nodiscard]] std::uint16_t metadata_after(const std::byte* header, std::uint32_t generation,
                                           std::size_t payload_bytes) noexcept;

/// Copies entries to `room`, and checks the copy. `protocol_error`: no correct peer sends them.
[[nodiscard]] result<std::span<const metadata_entry>, status> read_metadata(std::span<const std::byte> entries,
                                                                            metadata_room& room) noexcept;
/// The same for the extension of the message of that generation. `not_found`: it has none.
[[nodiscard]] result<std::span<const metadata_entry>, status> read_metadata(const std::byte* header,
                                                                            std::uint32_t generation,
                                                                            metadata_room& room) noexcept;

}  // namespace accel::core
