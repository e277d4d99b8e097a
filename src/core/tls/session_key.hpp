// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/openssl.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace accel::core {

/// A secret that both ends of a session share. It replaces certificates on data connections, as an external pre-shared
/// key with (EC)DHE (RFC 8446, section 2.2): no signatures, and nobody but the session's own client can make one.
struct session_key {
    std::uint64_t session_id = 0;
    std::array<std::byte, 16> token{};
};

/// The token of an open session. Called during handshakes, on the thread that makes them.
using find_token = std::function<std::optional<std::array<std::byte, 16>>(std::uint64_t session_id)>;

/// The key as TLS takes it: for the cipher suite that is offered first. Null: no memory.
[[nodiscard]] SSL_SESSION* make_pre_shared_key(SSL* of, const session_key& key) noexcept;

}  // namespace accel::core
