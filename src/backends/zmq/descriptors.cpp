// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/descriptors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::zmq {

bool room_for_descriptors(std::size_t count) noexcept {
    std::array<int, 32> taken{};
    const std::size_t wanted = std::min(count, taken.size());
    std::size_t got = 0;
    for (; got < wanted; ++got) {
        taken[got] = ::eventfd(0, EFD_CLOEXEC);
        if (taken[got] < 0) break;
    }
    for (std::size_t i = 0; i < got; ++i) ::close(taken[i]);
    return got == wanted;
}

error out_of_descriptors(std::string_view who) {
    return {
        status::system_error, EMFILE,
        fmt::format(
            "{} has no file descriptors left: raise the limit of open files (ulimit -n), or open fewer channels", who)};
}

bool watch_fd(int epoll_fd, int fd) noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    return ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &interest) == 0 || errno == EEXIST;
}

}  // namespace accel::zmq
