// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <bit>
#include <cstdint>

namespace accel::mlx5 {

/// A big-endian number as it lies in memory; a type of its own, so that none is used unswapped.
enum class be16 : std::uint16_t {};
/// Likewise, of 32 bits.
enum class be32 : std::uint32_t {};
/// Likewise, of 64 bits.
enum class be64 : std::uint64_t {};

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

ACCEL_HOST_DEVICE inline std::uint32_t swapped(std::uint32_t value) noexcept {
#if defined(__CUDA_ARCH__)
    return __byte_perm(value, 0, 0x0123);
#else
    return __builtin_bswap32(value);
#endif
}
ACCEL_HOST_DEVICE inline std::uint64_t swapped(std::uint64_t value) noexcept {
#if defined(__CUDA_ARCH__)
    const auto low = static_cast<std::uint32_t>(value);
    return (std::uint64_t{swapped(low)} << 32) | swapped(static_cast<std::uint32_t>(value >> 32));
#else
    return __builtin_bswap64(value);
#endif
}
ACCEL_HOST_DEVICE inline be16 to_be16(std::uint16_t value) noexcept {
    return static_cast<be16>(static_cast<std::uint16_t>((value << 8) | (value >> 8)));
}
ACCEL_HOST_DEVICE inline be32 to_be32(std::uint32_t value) noexcept {
    return static_cast<be32>(swapped(value));
}
ACCEL_HOST_DEVICE inline be64 to_be64(std::uint64_t value) noexcept {
    return static_cast<be64>(swapped(value));
}
ACCEL_HOST_DEVICE inline std::uint16_t from_be(be16 value) noexcept {
    return static_cast<std::uint16_t>(to_be16(static_cast<std::uint16_t>(value)));
}
ACCEL_HOST_DEVICE inline std::uint32_t from_be(be32 value) noexcept {
    return swapped(static_cast<std::uint32_t>(value));
}
ACCEL_HOST_DEVICE inline std::uint64_t from_be(be64 value) noexcept {
    return swapped(static_cast<std::uint64_t>(value));
}

}  // namespace accel::mlx5
