// SPDX-License-Identifier: Apache-2.0
#include "core/net/unix_socket.hpp"

#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace accel::core {

socket_address unix_address(std::string_view name) noexcept {
    constexpr std::string_view prefix = "accel_transport/";
    static_assert(1 + prefix.size() + max_socket_name <= sizeof(sockaddr_un::sun_path));
    name = name.substr(0, max_socket_name);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    // A leading zero makes the name an abstract one.
    std::memcpy(to.sun_path + 1, prefix.data(), prefix.size());
    std::memcpy(to.sun_path + 1 + prefix.size(), name.data(), name.size());
    socket_address out;
    out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + prefix.size() + name.size());
    std::memcpy(&out.storage, &to, sizeof to);
    return out;
}

bool is_own_user(int fd) noexcept {
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
    if (own.ss_family != AF_UNIX) return true;
    ucred peer{};
    length = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

error another_users_process(const std::string& host) {
    return {
        status::unauthorized, 0,
        fmt::format("{} belongs to another user's process, and shm:// connects processes of one user; run both ends "
                    "as the same user, or use tcp://",
                    host_and_port(host, 0))};
}

}  // namespace accel::core
