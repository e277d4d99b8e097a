// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>
#include <accel_transport/detail/wire/slot_header.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Where a response is to be placed: an extension of the request's header (docs/protocol.md, section 3).
namespace accel::wire {

/// Memory of the client's, opened for this.
struct response_target {
    std::uint64_t address = 0;
    std::uint64_t length = 0;  ///< bytes; 0: none, the response goes into its slot
    std::uint32_t key = 0;     ///< remote key
    std::uint32_t reserved = 0;
};

/// Precedes the value of every extension, which is padded to 8 bytes.
struct extension_head {
    std::uint16_t type = 0;
    std::uint16_t length = 0;  ///< of the value, bytes
    std::uint32_t reserved = 0;
};

inline constexpr std::uint16_t response_target_type = 1;

/// A response target as it travels.
struct response_target_extension {
    extension_head head{response_target_type, sizeof(response_target), 0};
    response_target value;
};
static_assert(sizeof(response_target_extension) == 32 && std::is_trivially_copyable_v<response_target_extension>);

/// How many `bytes` of extensions are in front of the header at `header`, in a slot. `not_found`: it is not the header
/// of that generation; then the message has come without extensions, and left its header elsewhere.
[[nodiscard]] ACCEL_HOST_DEVICE inline status extensions_before(const std::byte* header, std::uint32_t generation,
                                                                std::uint16_t& bytes) noexcept {
    struct {
        std::uint32_t generation;
        status code;
        std::uint16_t extension_bytes;
    } seen;
    static_assert(offsetof(slot_header, extension_bytes) == offsetof(slot_header, generation) + 6);
    __builtin_memcpy(&seen, header + offsetof(slot_header, generation), sizeof seen);
    if (seen.generation != generation) return status::not_found;
    if (seen.extension_bytes > extension_room || seen.extension_bytes % 8 != 0) return status::protocol_error;
    bytes = seen.extension_bytes;
    return status::ok;
}

/// Looks for a response target among the `bytes` of a request's extensions. `out` stays as it is where there
/// is none. False: the bytes are no extensions. Reads each byte once: the peer can change them meanwhile.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool find_response_target(const std::byte* extensions, std::size_t bytes,
                                                                 response_target& out) noexcept {
    while (bytes > 0) {
        extension_head head;
        if (bytes < sizeof head) return false;
        __builtin_memcpy(&head, extensions, sizeof head);
        const std::size_t padded = (std::size_t{head.length} + 7) / 8 * 8;
        if (bytes - sizeof head < padded) return false;
        if (head.type == response_target_type) {
            if (head.length != sizeof out) return false;
            __builtin_memcpy(&out, extensions + sizeof head, sizeof out);
        }
        extensions += sizeof head + padded;
        bytes -= sizeof head + padded;
    }
    return true;
}

}  // namespace accel::wire
