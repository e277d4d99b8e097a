// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/wire/response_target.hpp>
#include <accel_transport/device/detail/wire/slot_header.hpp>

#include <cstddef>
#include <cstdint>

/// Extensions lie in memory that the peer may change while they are read. So they are copied once, and the copy is
/// read.
namespace accel::device::detail::wire {

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

}  // namespace accel::device::detail::wire
