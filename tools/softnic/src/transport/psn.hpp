// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"

#include <cstdint>

/// Packet sequence numbers: 24 bits, compared around the circle.
namespace accel::softnic::psn {

[[nodiscard]] constexpr std::uint32_t add(std::uint32_t psn, std::uint32_t n) {
    return (psn + n) & psn_mask;
}

/// a - b, in [-2^23, 2^23).
[[nodiscard]] constexpr std::int32_t difference(std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

}  // namespace accel::softnic::psn
