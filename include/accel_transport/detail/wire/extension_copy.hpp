// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/slot_header.hpp>

#include <cstddef>
#include <cstdint>

/// Extensions lie in memory that the peer may change while they are read. So they are copied once, and the copy is
/// read.
namespace accel::wire {

/// A copy of the bytes in front of a header.
struct extension_copy {
    std::uint32_t length = 0;  ///< bytes
    alignas(8) std::byte bytes[extension_room];
};

/// Copies what is in front of the header at `header`, in a slot, and fails as `extensions_before`. Each word is loaded
/// once, which a compiler need not do for a copy of plain bytes.
[[nodiscard]] ACCEL_HOST_DEVICE inline status copy_extensions(const std::byte* header, std::uint32_t generation,
                                                              extension_copy& out) noexcept {
    std::uint16_t bytes = 0;
    const status seen = extensions_before(header, generation, bytes);
    if (seen != status::ok) return seen;
    const auto* const from = reinterpret_cast<const volatile std::uint64_t*>(header - bytes);
    for (std::uint32_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) {
        const std::uint64_t word = from[i];
        __builtin_memcpy(out.bytes + i * sizeof word, &word, sizeof word);
    }
    out.length = bytes;
    return status::ok;
}

/// Looks for the first extension of a type among `bytes` of them, which nobody changes meanwhile, and skips others.
/// `not_found`: there is none. `protocol_error`: no correct peer sends this.
[[nodiscard]] ACCEL_HOST_DEVICE inline status find_extension(const std::byte* extensions, std::size_t bytes,
                                                             std::uint16_t type, const std::byte*& value,
                                                             std::uint16_t& length) noexcept {
    while (bytes > 0) {
        extension_head head;
        if (bytes < sizeof head) return status::protocol_error;
        __builtin_memcpy(&head, extensions, sizeof head);
        const std::size_t padded = (std::size_t{head.length} + 7) / 8 * 8;
        if (bytes - sizeof head < padded) return status::protocol_error;
        value = extensions + sizeof head;
        length = head.length;
        if (head.type == type) return status::ok;
        extensions += sizeof head + padded;
        bytes -= sizeof head + padded;
    }
    return status::not_found;
}

}  // namespace accel::wire
