// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>

namespace accel::core {

/// An address that a socket may bind or connect to.
struct socket_address {
    sockaddr_storage storage{};
    socklen_t length = 0;
    [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
    /// Of TCP.
    void set_port(std::uint16_t port) noexcept {
        auto& place = storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                                    : reinterpret_cast<sockaddr_in&>(storage).sin_port;
        place = htons(port);
    }
};

}  // namespace accel::core
