// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/descriptors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

namespace accel::shm {
namespace {

/// The OS passes no more at once.
constexpr std::size_t max_passed = 253;

void take(const cmsghdr& part, std::span<core::unique_fd>& into) noexcept {
    const std::size_t count = (part.cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(&part) + i * sizeof number, sizeof number);
        core::unique_fd owned(number);
        if (into.empty()) continue;
        into.front() = std::move(owned);
        into = into.subspan(1);
    }
}

}  // namespace

bool send_descriptors(int socket, std::span<const std::byte> bytes, std::span<const int> passed) noexcept {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * std::tuple_size_v<passed_descriptors>)> room{};
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(passed.size_bytes());
    if (message.msg_controllen > room.size()) return false;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(passed.size_bytes());
    std::memcpy(CMSG_DATA(head), passed.data(), passed.size_bytes());
    return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

ssize_t receive_descriptors(int socket, std::span<std::byte> bytes, std::span<core::unique_fd> into) noexcept {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * max_passed)> room;
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) take(*part, into);
    if ((message.msg_flags & MSG_CTRUNC) == 0) return got;
    errno = EMFILE;  // there was room for all that a message can bring
    return -1;
}

}  // namespace accel::shm
