// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/slot_header.hpp>
#include <accel_transport/status.hpp>

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

/// Bytes on the wire of the data path. docs/protocol.md is the specification; this file and the public
/// detail/wire/slot_header.hpp, for what device code sees too, are its only code.
namespace accel::core {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian; big-endian hosts are not "
              "supported");

using wire::extension_room;
using wire::header_bytes;
using wire::is_well_formed;
using wire::max_payload_bytes;
using wire::max_slots;
using wire::message_kind;
using wire::protocol_version;
using wire::slot_header;
namespace header_flag = wire::header_flag;

/// Continues a fragmented payload on a stream transport: 16 bytes, then `length` payload bytes.
struct fragment_header {
    std::uint8_t version = protocol_version;
    message_kind kind = message_kind::fragment;
    std::uint16_t reserved = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    std::uint32_t length = 0;  ///< payload bytes of this fragment, never 0
};
static_assert(sizeof(fragment_header) == 16 && std::is_trivially_copyable_v<fragment_header>);

/// Durations travel in ticks of 64 ns, saturating: a shift to make, 4.5 minutes of range.
[[nodiscard]] inline std::uint32_t to_ticks(std::chrono::nanoseconds duration) noexcept {
    const std::int64_t ticks = duration.count() >> 6;
    const auto low = static_cast<std::uint32_t>(ticks);
    if (ticks == std::int64_t{low}) [[likely]]
        return low;
    return ticks < 0 ? 0 : 0xFFFF'FFFF;
}
[[nodiscard]] inline std::chrono::nanoseconds from_ticks(std::uint32_t ticks) noexcept {
    return std::chrono::nanoseconds{std::int64_t{ticks} << 6};
}

/// Well-formed, of status ok and without extensions, as most messages are. Status and size of the extensions are one
/// number here.
[[nodiscard]] inline bool is_plain(const slot_header& h, message_kind kind) noexcept {
    static_assert(offsetof(slot_header, extension_bytes) == offsetof(slot_header, code) + sizeof h.code);
    std::uint32_t code_and_extension = 0;
    std::memcpy(&code_and_extension, reinterpret_cast<const std::byte*>(&h) + offsetof(slot_header, code),
                sizeof code_and_extension);
    return code_and_extension == 0 && is_well_formed(h, kind);
}

/// The same header without what `is_well_formed` does not know: the flags of parts.
[[nodiscard]] inline slot_header without_parts(slot_header h) noexcept {
    h.flags &= static_cast<std::uint16_t>(~header_flag::of_parts);
    return h;
}

/// True: none of the flags of parts, or those that may be together. Room for a part of a response is a bare header, and
/// a part of a request has no extensions.
[[nodiscard]] inline bool part_flags_fit(const slot_header& h, message_kind kind) noexcept {
    const std::uint16_t flags = h.flags & header_flag::of_parts;
    if (flags == 0) return true;
    if (kind == message_kind::response) return flags == header_flag::more;
    if ((flags & header_flag::more) != 0)
        return h.flags == header_flag::more && h.length == 0 && h.extension_bytes == 0;
    if ((flags & header_flag::part) != 0) return (flags & header_flag::parts) == 0 && h.extension_bytes == 0;
    return true;
}

/// Well-formed, but for flags of parts that are where they may be.
[[nodiscard]] inline bool is_of_parts(const slot_header& h, message_kind kind) noexcept {
    return part_flags_fit(h, kind) && is_well_formed(without_parts(h), kind);
}

/// Checks what does not depend on a session: version, kind, flags, extension size, status, slot, length.
/// `protocol_error` or `version_mismatch` if no correct peer of `kind` sends it.
[[nodiscard]] inline status check_header(const slot_header& h, message_kind kind) noexcept {
    if (h.version != protocol_version) return status::version_mismatch;
    if (!is_well_formed(h, kind) && !is_of_parts(h, kind)) [[unlikely]]
        return status::protocol_error;
    const bool good = h.slot < max_slots && h.length <= max_payload_bytes;
    return good ? status::ok : status::protocol_error;
}

/// A call, as room for one of its parts, or a part of its request, names it.
[[nodiscard]] inline std::uint64_t parts_call_of(std::uint32_t slot, std::uint32_t generation) noexcept {
    return slot | std::uint64_t{generation} << 32;
}

/// Copies a header out of untrusted bytes; `bytes` holds at least 64.
inline void read_header(slot_header& out, const std::byte* bytes) noexcept {
    std::memcpy(&out, bytes, sizeof out);
}
[[nodiscard]] inline slot_header read_header(const std::byte* bytes) noexcept {
    slot_header h;
    read_header(h, bytes);
    return h;
}

}  // namespace accel::core
