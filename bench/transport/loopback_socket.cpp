// SPDX-License-Identifier: Apache-2.0
#include "loopback_socket.hpp"

#include "side.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace accel::bench {
namespace {

sockaddr_in loopback(std::uint16_t port) noexcept {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

void send_at_once(int socket) noexcept {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

descriptor serve_one_on_loopback() {
    const descriptor listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener.get(), generic, length) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), generic, &length) != 0)
        return descriptor{-1};
    announce(std::to_string(ntohs(address.sin_port)));
    descriptor client{accept(listener.get(), nullptr, nullptr)};
    send_at_once(client.get());
    return client;
}

result<descriptor> connect_on_loopback(const std::string& port) {
    descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in address = loopback(static_cast<std::uint16_t>(std::atoi(port.c_str())));
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return error{status::system_error, errno, std::string{"connect: "} + std::strerror(errno)};
    send_at_once(socket.get());
    return socket;
}

std::string free_port() {
    const descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket.get(), generic, length) != 0 || getsockname(socket.get(), generic, &length) != 0) return "0";
    return std::to_string(ntohs(address.sin_port));
}

bool write_all(int socket, std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
        const ssize_t now = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (now <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(now));
    }
    return true;
}

bool read_all(int socket, std::span<std::byte> bytes) noexcept {
    while (!bytes.empty()) {
        const ssize_t now = ::recv(socket, bytes.data(), bytes.size(), 0);
        if (now <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(now));
    }
    return true;
}

}  // namespace accel::bench
