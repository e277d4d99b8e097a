// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hostile/arena.hpp"

#include <cstddef>
#include <string>
#include <vector>

/// What attackers do, each on its thread until it is told to stop.
namespace accel::hostile {

/// Connects and closes, as fast as it can.
[[nodiscard]] attack storm(const std::string& source);
/// Keeps so many connections that have sent these bytes and nothing else; replaces those that are closed.
[[nodiscard]] attack keep_open(const std::string& source, std::size_t count, std::vector<std::byte> bytes);
/// So many connections that send one byte of this each `pause`, from its start.
[[nodiscard]] attack drip(const std::string& source, std::size_t count, std::vector<std::byte> bytes,
                          std::chrono::milliseconds pause);
/// Connects, sends these bytes, waits a moment for the end, and connects again.
[[nodiscard]] attack send_and_leave(const std::string& source, std::vector<std::vector<std::byte>> all);
/// Over one connection by hand, with TLS where there are keys: sends these bytes again and again, as fast as
/// they are taken. `reads`: what comes back is thrown away, else left unread.
[[nodiscard]] attack flood(const std::string& source, identity keys, std::vector<std::byte> bytes, bool reads = true);
/// TLS handshakes, and the greeting behind them, as fast as they go: so many at once.
[[nodiscard]] attack shake_hands(const std::string& source, identity keys, std::size_t at_once);

}  // namespace accel::hostile
