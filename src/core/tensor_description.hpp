// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

/// A message's description of the tensors in its payload: in an extension of its header, or in a table at the payload's
/// head. The same at both ends. Both forms mean the same.
namespace accel::core {

/// A message to be described.
struct described_message {
    std::byte* header = nullptr;  ///< in its slot, with room for extensions in front of it
    std::span<std::byte> payload;
    bool on_host = true;         ///< a table can be written to the payload
    std::size_t extensions = 0;  ///< bytes of its room that other extensions need
};

/// Writes the description: in front of the header if it fits there, else as a table.
/// `extension_bytes`: of the former, for the header; 0: it is a table. `invalid_argument`: there are none or too many,
/// or one does not lie in the payload, behind the table if there is one; `unsupported`: the table would be on a device.
[[nodiscard]] status describe_message(const described_message& message, std::span<const tensor> list,
                                      std::uint16_t& extension_bytes) noexcept;

/// Reads the description of the message of that generation. `on_host`: its payload is. Fails as `accel::tensors`, but
/// with `not_found`: there is none; and `unsupported`: if there is one, it is a table on a device.
[[nodiscard]] result<std::span<tensor>, status> read_description(const std::byte* header, std::uint32_t generation,
                                                                 std::span<const std::byte> payload, bool on_host,
                                                                 std::span<tensor> room) noexcept;

}  // namespace accel::core
