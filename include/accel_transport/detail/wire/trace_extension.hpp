// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/extension_copy.hpp>
#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/slot_header.hpp>
#include <accel_transport/trace.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The trace that a request belongs to, as an extension of its header (docs/protocol.md, section 3).
namespace accel::wire {

inline constexpr std::uint16_t trace_type = 4;
inline constexpr std::uint16_t baggage_type = 5;  ///< its value is text

/// A trace as it travels.
struct trace_extension {
    extension_head head{trace_type, sizeof(trace_context), 0};
    trace_context value;
    std::byte padding[7]{};
};
static_assert(sizeof(trace_extension) == 40 && std::is_trivially_copyable_v<trace_extension>);

/// As `trace_context::valid`, also in a kernel.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_trace(const trace_context& what) noexcept {
    std::uint64_t ids[3];  // the trace's, then its parent's
    static_assert(offsetof(trace_context, trace_id) == 0 && offsetof(trace_context, flags) == sizeof ids);
    __builtin_memcpy(ids, &what, sizeof ids);
    return (ids[0] | ids[1]) != 0 && ids[2] != 0;
}

/// Looks for a trace among the `bytes` of a request's extensions, which nobody changes meanwhile. `not_found`: there is
/// none. `protocol_error`: no correct peer sends this.
[[nodiscard]] ACCEL_HOST_DEVICE inline status find_trace(const std::byte* extensions, std::size_t bytes,
                                                         trace_context& out) noexcept {
    const std::byte* value = nullptr;
    std::uint16_t length = 0;
    const status seen = find_extension(extensions, bytes, trace_type, value, length);
    if (seen != status::ok) return seen;
    if (length != sizeof out) return status::protocol_error;
    trace_context found;
    __builtin_memcpy(&found, value, sizeof found);
    if (!is_trace(found)) return status::protocol_error;
    out = found;
    return status::ok;
}

/// Reads the trace of the request of that generation. `not_found`: it has none; `protocol_error`: its extensions are
/// not what a correct peer sends.
[[nodiscard]] ACCEL_HOST_DEVICE inline status trace_before(const std::byte* header, std::uint32_t generation,
                                                           trace_context& out) noexcept {
    out = {};
    extension_copy copy;
    const status seen = copy_extensions(header, generation, copy);
    return seen != status::ok ? seen : find_trace(copy.bytes, copy.length, out);
}

}  // namespace accel::wire
