// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/descriptors.hpp"

#include "core/net/descriptor_error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::zmq {

int try_descriptors(std::size_t count) noexcept {
    std::array<int, 32> taken{};
    const std::size_t wanted = std::min(count, taken.size());
    std::size_t got = 0;
    for (; got < wanted; ++got) {
        taken[got] = got == 0 ? ::epoll_create1(EPOLL_CLOEXEC) : ::eventfd(0, EFD_CLOEXEC);
        if (taken[got] < 0) break;
    }
    const int failure = got == wanted ? 0 : errno;
    for (std::size_t i = 0; i < got; ++i) ::close(taken[i]);
    return failure;
}

error no_descriptor(int number) {
    return core::no_descriptor("for zmq", number);
}

bool watch_fd(int epoll_fd, int fd) noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    return ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &interest) == 0 || errno == EEXIST;
}

}  // namespace accel::zmq
