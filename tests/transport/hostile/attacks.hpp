// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hostile/arena.hpp"

#include <cstddef>
#include <string>
#include <vector>

/// What attackers do, each on its thread until it is told to stop.
namespace accel::hostile {

/// Bytes of all lengths that mean nothing.
[[nodiscard]] std::vector<std::vector<std::byte>> random_texts(unsigned seed, int count);
/// What a data connection begins with.
[[nodiscard]] std::vector<std::byte> shown(std::uint64_t session_id, const core::session_token& token);

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
/// Bursts of changed TLS keys, each as long as what OpenSSL reads at once, on one connection after another.
[[nodiscard]] attack renew_keys(const std::string& source, identity keys);
/// Requests of a megabyte in TLS records of one byte, one after another.
[[nodiscard]] attack drip_records(const std::string& source, identity keys);
/// So many control connections that ask for sessions without end and read no answer.
[[nodiscard]] attack ask_for_sessions(const std::string& source, identity keys, std::size_t connections);
/// Connections that say nothing, a thousand a second, each from another of 3,000 addresses; each stays for a round.
[[nodiscard]] attack come_from_everywhere();
/// As many sessions as one client gets, and as many connections.
[[nodiscard]] attack hoard_sessions(const std::string& source, identity keys);

}  // namespace accel::hostile
