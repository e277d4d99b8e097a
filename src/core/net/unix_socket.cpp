// SPDX-License-Identifier: Apache-2.0
#include "core/net/unix_socket.hpp"

#include "core/net/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
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

namespace {

/// All users but one are known by their numbers in this user namespace, as in a machine's first one.
bool knows_all_users() noexcept {
    const unique_fd file(::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
    std::array<char, 64> text{};
    const ssize_t got = file.open() ? ::read(file.get(), text.data(), text.size() - 1) : 0;
    unsigned inside = 0;
    unsigned outside = 0;
    unsigned count = 0;
    return got > 0 && std::sscanf(text.data(), "%u %u %u", &inside, &outside, &count) == 3 && count == ~0U;
}

/// The number in place of those of users that a user namespace does not know: "nobody".
uid_t nobody() noexcept {
    const unique_fd file(::open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC));
    std::array<char, 16> text{};
    const ssize_t got = file.open() ? ::read(file.get(), text.data(), text.size() - 1) : 0;
    unsigned number = 0;
    return got > 0 && std::sscanf(text.data(), "%u", &number) == 1 ? number : 65'534;
}

/// A user namespace may have several users at this number.
bool is_many_users(uid_t number) noexcept {
    return number == nobody() && !knows_all_users();
}

}  // namespace

bool is_own_user(int fd) noexcept {
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
    if (own.ss_family != AF_UNIX) return true;
    ucred peer{};
    length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != ::geteuid()) return false;
    return !is_many_users(peer.uid);
}

error another_users_process(const std::string& host) {
    if (is_many_users(::geteuid()))
        return {status::unauthorized, 0,
                fmt::format("{}: user number {} stands for every user unknown to this user namespace, so users cannot "
                            "be told apart; run both ends as another user, or use tcp://",
                            host_and_port(host, 0), ::geteuid())};
    return {
        status::unauthorized, 0,
        fmt::format("{} belongs to another user's process, and shm:// only connects processes of one user; run both "
                    "ends as the same user, or use tcp://",
                    host_and_port(host, 0))};
}

}  // namespace accel::core
