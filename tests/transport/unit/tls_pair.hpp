// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tcp_pair.hpp"

#include <array>
#include <optional>
#include <span>
#include <thread>

namespace accel::tcp::testing {

inline world_security all_encrypted() {
    static const world_security keys = with_keys(encryption::required, encryption::required);
    return keys;
}

inline std::array<core::unique_fd, 2> connected_pair() {
    auto door = core::listener::open("127.0.0.1", 0);
    EXPECT_TRUE(door.ok());
    auto client = core::connect_to("127.0.0.1", door->port(), core::deadline_after(5s));
    EXPECT_TRUE(client.ok());
    core::unique_fd server;
    while (door->accept(server) != core::listener::outcome::accepted) std::this_thread::sleep_for(1ms);
    return {std::move(*client), std::move(server)};
}

/// Both ends of one data connection in TLS.
struct tls_pair {
    tls_pair() {
        const world_security security = all_encrypted();
        client.emplace(*core::tls_stream::connect(security.client->keys, sockets[0].get(), "", core::data_protocol));
        server.emplace(*core::tls_stream::accept(security.server->current()->keys, sockets[1].get()));
        const core::nanoseconds deadline = core::deadline_after(5s);
        while (!done && core::now() < deadline) {
            done = client->handshake() == core::tls_outcome::done;
            done = server->handshake() == core::tls_outcome::done && done;
        }
    }
    std::array<core::unique_fd, 2> sockets = connected_pair();
    std::optional<core::tls_stream> client;
    std::optional<core::tls_stream> server;
    bool done = false;
};

/// Reads until something comes.
inline core::tls_outcome read_some(core::tls_stream& from, std::span<std::byte> into, std::size_t& count) {
    const core::nanoseconds deadline = core::deadline_after(5s);
    core::tls_outcome outcome = from.read(into, count);
    while (outcome == core::tls_outcome::wants_read && core::now() < deadline) outcome = from.read(into, count);
    return outcome;
}

}  // namespace accel::tcp::testing
