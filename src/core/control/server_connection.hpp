// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/client_limits.hpp"
#include "core/control/control_stream.hpp"
#include "core/control/session.hpp"
#include "core/net/socket.hpp"

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>

namespace accel::core {

/// How far a connection to a server has come.
enum class connection_stage : std::uint8_t {
    opening,    ///< its first byte tells whether it speaks TLS
    queued,     ///< waits to start its handshake
    shaking,    ///< TLS shakes hands
    greeting,   ///< its first bytes tell what it is for
    attaching,  ///< a data connection: the rest of its preamble
    serving,    ///< a control connection
    leaving,    ///< refused or lost: what was said last is on its way
};

/// One connection to a server's port, until it ends or is passed on. Belongs to the control thread.
struct server_connection {
    server_connection(std::uint64_t number, unique_fd socket, std::string from, nanoseconds at)
        : id(number), stream(std::move(socket)), since(at) {
        client.address = std::move(from);
        client.network = network_of(client.address);
    }

    /// True until it has said who it is and what it wants.
    [[nodiscard]] bool half_open() const noexcept { return stage != connection_stage::serving; }
    /// serving: it has no session, and none is being opened.
    [[nodiscard]] bool unused() const noexcept { return sessions.empty() && opening == 0; }

    const std::uint64_t id;
    control_stream stream;
    connection_stage stage = connection_stage::opening;
    client_identity client;
    nanoseconds since;                 ///< start of this stage; its deadline counts from here
    std::uint64_t key_generation = 0;  ///< of the server's keys when its handshake began
    std::uint32_t watched = 0;         ///< events that the epoll looks for
    std::uint32_t events = 0;          ///< that have come and wait for this connection's turn
    bool has_turn = false;             ///< is in the line for one

    // serving:
    /// The rate limit of its messages.
    token_bucket messages{4096, 2048};
    nanoseconds paused_until{};  ///< not read until then
    std::unordered_set<std::uint64_t> sessions;
    std::uint32_t opening = 0;
    std::size_t unsent = 0;  ///< bytes that count for its client
    nanoseconds peer_timeout = never;
    nanoseconds next_beat = never;
    nanoseconds heard{};  ///< on the listening clock
    nanoseconds idle_since{};
    wall_time admitted_until = wall_time::max();
    nanoseconds echo{};
    nanoseconds echo_received{};
};

}  // namespace accel::core
