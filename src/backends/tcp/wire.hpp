#pragma once

#include "core/backend.hpp"
#include "core/protocol.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// What precedes the slot headers on a data connection (docs/protocol.md, "tcp stream").
namespace accel::tcp {

/// Payload bytes of one fragment. Longer payloads are cut, so that others can pass between the pieces.
inline constexpr std::size_t fragment_bytes = 256 << 10;

/// First bytes of a client on its data connection.
struct attach_preamble {
    static constexpr std::array<char, 8> magic_text{'A', 'C', 'C', 'L', 'T', 'C', 'P', '\n'};

    std::array<char, 8> magic = magic_text;
    std::uint8_t version = core::protocol_version;
    std::array<std::uint8_t, 7> reserved{};
    std::uint64_t session_id = 0;
    core::session_token token{};
    std::array<std::uint8_t, 24> padding{};  ///< zero
};
static_assert(sizeof(attach_preamble) == 64 && std::is_trivially_copyable_v<attach_preamble>);

/// What a server's link tells its client: where the data path listens.
struct server_address {
    std::uint8_t format = 1;
    std::uint8_t reserved = 0;
    std::uint16_t port = 0;
};
static_assert(sizeof(server_address) == 4);

/// The last record of a client that closes: it tells a close from a death, which ends the stream in the same
/// way.
[[nodiscard]] inline core::fragment_header make_goodbye() noexcept {
    core::fragment_header f;
    f.slot = 0xffff'ffff;
    return f;
}
[[nodiscard]] inline bool is_goodbye(const core::fragment_header& f) noexcept {
    return f.slot == 0xffff'ffff && f.generation == 0 && f.length == 0;
}

/// Compares in a time that does not depend on the contents.
[[nodiscard]] inline bool equal_in_constant_time(const core::session_token& a,
                                                 const core::session_token& b) noexcept {
    unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference |= std::to_integer<unsigned>(a[i] ^ b[i]);
    }
    return difference == 0;
}

}  // namespace accel::tcp
