// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/trace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// The trace and the baggage of a request, in extensions of its header. The same at both ends.
namespace accel::core {

/// A message that gets one more extension.
struct extended_message {
    std::byte* header = nullptr;        ///< in its slot, with room for extensions in front of it
    std::uint16_t extension_bytes = 0;  ///< that are in front of it already
    std::size_t others = 0;             ///< bytes of its room that other extensions need
};

/// Writes the trace in front of what is there. How many bytes of extensions there are now: as many as before if there
/// is no room.
[[nodiscard]] std::uint16_t write_trace(const extended_message& message, const trace_context& trace) noexcept;

/// Reads the trace of the message of that generation. `not_found`: it has none; `protocol_error`: its extensions are
/// not what a correct peer sends.
[[nodiscard]] result<trace_context, status> read_trace(const std::byte* header, std::uint32_t generation) noexcept;

/// As `write_trace`.
[[nodiscard]] std::uint16_t write_baggage(const extended_message& message, std::string_view text) noexcept;

/// As `read_trace`, and as `exchange::baggage`.
[[nodiscard]] result<std::string_view, status> read_baggage(const std::byte* header, std::uint32_t generation,
                                                            std::span<char> room) noexcept;

}  // namespace accel::core
