// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::tests {

/// A loopback address of this process alone. Tests run side by side, and a client that still tries the port
/// of a server that has ended would else reach another test's server on it.
[[nodiscard]] inline const std::string& own_loopback() {
    static const std::string address = [] {
        const auto pid = static_cast<std::uint32_t>(::getpid());
        const auto part = [](std::uint32_t value) { return std::to_string(value); };
        return "127." + part(1 + (pid >> 14) % 250) + "." + part((pid >> 7) % 128) + "." + part(1 + pid % 128);
    }();
    return address;
}

/// Whether `::1` is an address of this machine.
[[nodiscard]] inline bool has_ipv6() {
    const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback) == 0;
    ::close(fd);
    return bound;
}

}  // namespace accel::tests
