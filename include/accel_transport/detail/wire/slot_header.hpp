// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Bytes on the wire that a CPU and a kernel read alike: docs/protocol.md, sections 1 to 3.
namespace accel::wire {

inline constexpr std::uint8_t protocol_version = 1;

/// The kind of message after a header.
enum class message_kind : std::uint8_t { request = 1, response = 2, fragment = 3 };

namespace header_flag {
inline constexpr std::uint16_t more = 1;        ///< response: a part of one. Request: room for one more part
inline constexpr std::uint16_t fragmented = 2;  ///< stream transports: the payload comes in fragments
inline constexpr std::uint16_t parts = 4;       ///< request: its response may come in parts
inline constexpr std::uint16_t continues = 8;   ///< request: a part of it follows
inline constexpr std::uint16_t part = 16;       ///< request: a part of another slot's request
inline constexpr std::uint16_t known = fragmented;
inline constexpr std::uint16_t of_parts = more | parts | continues | part;  ///< for those who know parts
}  // namespace header_flag

/// Precedes every payload: 64 bytes, little-endian. Offsets in docs/protocol.md, section 2.
struct slot_header {
    std::uint8_t version = protocol_version;
    message_kind kind = message_kind::request;
    std::uint16_t flags = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    status code = status::ok;           ///< responses only
    std::uint16_t extension_bytes = 0;  ///< length of all extensions, a multiple of 8
    std::uint64_t length = 0;           ///< payload bytes
    union {
        std::uint64_t trace_id = 0;
        std::uint64_t parts_before;  ///< a part, or a response that ends parts: how many came before it
        std::uint64_t parts_call;    ///< room for a part, or one of a request: of which call, slot below generation
    };
    union {
        std::uint32_t server_ticks = 0;  ///< response: request complete until reply posted
        std::uint32_t target;            ///< request: the number of what it is for; 0: not named
    };
    union {
        std::uint32_t response_room = 0;  ///< request: the longest response the client accepts, bytes
        std::uint32_t application_code;   ///< response: the handler's own code
    };
    union {
        std::int64_t deadline_ns = 0;        ///< request: on the server's monotonic clock
        std::int64_t arrival_ns;             ///< response: when the request was complete, the same clock
        std::uint64_t request_parts_before;  ///< a part of a request: how many came before it
    };
    std::uint32_t queue_ticks = 0;  ///< response: stages, in ticks
    std::uint32_t copy_ticks = 0;
    std::uint32_t preprocessing_ticks = 0;
    union {
        std::uint32_t inference_ticks = 0;
        std::uint32_t arrival_word;  ///< request without announcement: the generation again, which is written last
    };
};
static_assert(sizeof(slot_header) == 64 && std::is_trivially_copyable_v<slot_header>);
static_assert(offsetof(slot_header, slot) == 4 && offsetof(slot_header, code) == 12 &&
              offsetof(slot_header, length) == 16 && offsetof(slot_header, server_ticks) == 32 &&
              offsetof(slot_header, response_room) == 36 && offsetof(slot_header, deadline_ns) == 40 &&
              offsetof(slot_header, queue_ticks) == 48 && offsetof(slot_header, arrival_word) == 60);
inline constexpr std::size_t arrival_word_offset = offsetof(slot_header, arrival_word);

/// Room kept in front of each slot's header for extensions: each is `u16 type, u16 length, u32 reserved`,
/// then `length` bytes padded to 8. Unknown types are skipped.
inline constexpr std::size_t extension_room = 192;
inline constexpr std::size_t header_bytes = sizeof(slot_header);

/// Limits every peer has to keep, whatever was negotiated.
inline constexpr std::uint32_t max_slots = 65'536;
inline constexpr std::uint64_t max_payload_bytes = std::uint64_t{1} << 30;

/// Version, kind, flags, extension size and status are what a correct peer of `kind` sends. Callers
/// compare slot and length with limits of their own. Kind and flags are looked at together, and so are status
/// and extension size, which are 0 in most messages.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_well_formed(const slot_header& h, message_kind kind) noexcept {
    constexpr std::uint32_t known_flags = std::uint32_t{header_flag::known} << 16;
    std::uint32_t first = 0;
    __builtin_memcpy(&first, &h, sizeof first);
    const std::uint32_t expected = protocol_version | static_cast<std::uint32_t>(kind) << 8;
    if ((first & ~known_flags) != expected) return false;
    std::uint32_t code_and_extension = 0;
    __builtin_memcpy(&code_and_extension, reinterpret_cast<const std::byte*>(&h) + offsetof(slot_header, code),
                     sizeof code_and_extension);
    if (code_and_extension == 0) [[likely]]
        return true;
    return h.extension_bytes <= extension_room && h.extension_bytes % 8 == 0 &&
           static_cast<std::uint16_t>(h.code) < status_count;
}

}  // namespace accel::wire
