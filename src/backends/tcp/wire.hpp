// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/protocol.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The bytes before the slot headers on a data connection (docs/protocol.md, "tcp stream").
namespace accel::tcp {

/// Payload bytes of one fragment. Longer payloads are cut, so that others can pass between the pieces.
inline constexpr std::size_t fragment_bytes = 256 << 10;

/// A client link's requests to its server's link.
struct client_wish {
    std::uint8_t format = 1;
    std::uint8_t flags = 0;  ///< `encrypted`
    std::array<std::uint8_t, 2> reserved{};
    static constexpr std::uint8_t encrypted = 1;
};
static_assert(sizeof(client_wish) == 4);

/// The last record of a client that closes: it tells a close from a death, which ends the stream in the same way.
[[nodiscard]] inline core::fragment_header make_goodbye() noexcept {
    core::fragment_header f;
    f.slot = 0xffff'ffff;
    return f;
}
[[nodiscard]] inline bool is_goodbye(const core::fragment_header& f) noexcept {
    return f.slot == 0xffff'ffff && f.generation == 0 && f.length == 0;
}

}  // namespace accel::tcp
