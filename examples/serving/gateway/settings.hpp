// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::gateway {

/// How a request finds its server, where several serve its model.
enum class balance : std::uint8_t {
    round_robin,
    least_loaded,  ///< the one with the fewest calls of this gateway in flight
    sticky,        ///< always the same one for the same key, while it is connected
};

/// What `balance::sticky` goes by.
enum class sticky_key : std::uint8_t { session, trace };

/// One `--to`.
struct destination {
    std::string model;  ///< empty: requests without a target
    std::string uri;
};

struct settings {
    std::vector<std::string> listen;
    std::vector<destination> to;
    gateway::balance balance = balance::round_robin;
    sticky_key key = sticky_key::session;
    std::uint32_t channels = 2;  ///< to each server
    std::uint32_t slots = 32;    ///< of each channel
    std::size_t queue = 256;     ///< requests that wait for a free slot, at most
    std::chrono::nanoseconds spin = std::chrono::microseconds{50};
    std::chrono::nanoseconds patience = std::chrono::seconds{5};  ///< for the first server, at the start
    std::chrono::nanoseconds hold = std::chrono::seconds{2};      ///< `peer_timeout` of the outgoing channels
    std::string metrics;
    bool json = false;
};

/// From "MODEL=URI" or "URI"; nothing where the text is neither.
[[nodiscard]] std::optional<destination> parse_destination(std::string_view text);

/// Nothing: go on. Else the exit status, after whatever had to be printed.
[[nodiscard]] std::optional<int> read_command_line(int argc, char** argv, settings& out);

}  // namespace accel::examples::gateway
