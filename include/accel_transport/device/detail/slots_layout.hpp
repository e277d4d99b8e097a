// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/detail/wire/slot_header.hpp>
#include <accel_transport/device/clock.hpp>

#include <cstddef>
#include <cstdint>

/// Slots of a connection as kernels see them, this end's and its peer's.
namespace accel::device::detail {

/// Slots of one direction of a session: header i is at `headers + i * stride`, its payload right after it.
struct slots_layout {
    std::byte* headers = nullptr;
    std::uint64_t stride = 0;
    std::uint64_t capacity = 0;  ///< payload bytes agreed on
    std::uint32_t key = 0;       ///< the adapter's, of all of it
};

/// Slots of the peer, where messages are written.
struct peer_slots_layout {
    std::uint64_t headers = 0;
    std::uint64_t headers_stride = 0;
    std::uint64_t payloads = 0;  ///< 0: right after their headers
    std::uint64_t payloads_stride = 0;
    std::uint32_t headers_key = 0;
    std::uint32_t payloads_key = 0;
    std::uint32_t plain = 0;  ///< 1: it looks at the last word of headers, and is not told of messages
};

ACCEL_HOST_DEVICE inline std::byte* header_of(const slots_layout& slots, std::uint32_t slot) noexcept {
    return slots.headers + slots.stride * slot;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline const std::uint32_t* generation_of(const std::byte* header) noexcept {
    return reinterpret_cast<const std::uint32_t*>(header + offsetof(wire::slot_header, generation));
}

/// Once: the peer can change it.
ACCEL_HOST_DEVICE inline void load_header(const std::byte* from, wire::slot_header& out) noexcept {
    static_assert(sizeof out % sizeof(std::uint64_t) == 0);
    std::uint64_t words[sizeof out / sizeof(std::uint64_t)];
    for (std::size_t i = 0; i < sizeof out / sizeof(std::uint64_t); ++i)
        words[i] = mlx5::load_whole(reinterpret_cast<const std::uint64_t*>(from) + i);
    __builtin_memcpy(&out, words, sizeof out);
}

/// The header of a message that has been announced, once it can be seen: its announcement lies elsewhere, and
/// may overtake it by a moment. That is when its generation is `generation` (`equal`), or is no longer.
/// False: it does not come.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool await_header(const std::byte* from, std::uint32_t generation, bool equal,
                                                         wire::slot_header& out) noexcept {
    constexpr std::int64_t patience_ns = 1'000'000;
    const std::uint32_t* const seen = generation_of(from);
    for (std::int64_t start = 0; (mlx5::load_flag(seen) == generation) != equal; pause()) {
        const std::int64_t now = clock_ns();
        if (start == 0) start = now;
        if (now - start > patience_ns) return false;
    }
    load_header(from, out);
    return true;
}

/// This end's own, which no peer can change. Kernels' slots are aligned to a header's size.
ACCEL_HOST_DEVICE inline void store_header(const wire::slot_header& header, std::byte* to) noexcept {
#if defined(__CUDA_ARCH__)
    uint4 quads[sizeof header / sizeof(uint4)];
    __builtin_memcpy(quads, &header, sizeof header);
    for (std::size_t i = 0; i < sizeof header / sizeof(uint4); ++i) reinterpret_cast<uint4*>(to)[i] = quads[i];
#else
    std::uint64_t words[sizeof header / sizeof(std::uint64_t)];
    __builtin_memcpy(words, &header, sizeof header);
    auto* const at = reinterpret_cast<std::uint64_t*>(to);
    for (std::size_t i = 0; i < sizeof header / sizeof(std::uint64_t); ++i) at[i] = words[i];
#endif
}

}  // namespace accel::device::detail
