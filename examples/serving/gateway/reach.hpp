// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::gateway {

/// How a request finds its server, where several serve its model.
enum class balance : std::uint8_t {
    round_robin,
    least_loaded,  ///< the one with the fewest calls of this gateway in flight
    sticky,        ///< always the same one for the same key, while it is connected
};

/// From "round-robin", "least-loaded" or "sticky"; nothing where the text is none of them.
[[nodiscard]] std::optional<balance> parse_balance(std::string_view text) noexcept;

/// A number for a text, the same in all processes.
[[nodiscard]] std::uint64_t number_of(std::string_view text) noexcept;

/// The key of `balance::sticky`.
enum class sticky_key : std::uint8_t { session, trace, metadata };

struct reach_settings;
/// From "session", "trace" or "metadata:NAME", whose key is NAME in lower case. False: the text is none of them.
[[nodiscard]] bool read_sticky_key(std::string_view text, reach_settings& to);

/// How servers are reached and chosen.
struct reach_settings {
    gateway::balance balance = balance::round_robin;
    sticky_key key = sticky_key::session;
    std::string key_name{};                                           ///< of `sticky_key::metadata`
    std::uint32_t channels = 2;                                       ///< to each server
    std::uint32_t slots = 32;                                         ///< of each channel
    std::chrono::nanoseconds patience = std::chrono::seconds{5};      ///< for the first server, at the start
    std::chrono::nanoseconds hold = std::chrono::seconds{2};          ///< `peer_timeout` of the outgoing channels
    std::chrono::nanoseconds dns_refresh = std::chrono::seconds{30};  ///< how often names are resolved again
    std::chrono::nanoseconds lookup = std::chrono::seconds{5};        ///< how long one lookup of a name may take
};

}  // namespace accel::examples::gateway
