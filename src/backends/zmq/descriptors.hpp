// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>

/// libzmq aborts the process if it finds no file descriptor for one of its threads, and waits silently if it
/// finds none for a connection. So descriptors are checked before libzmq needs them.
namespace accel::zmq {

/// For a context: its threads, and the sockets that come with it.
inline constexpr std::size_t context_descriptors = 16;
/// For a socket with its monitor and its connection.
inline constexpr std::size_t socket_descriptors = 8;

/// Whether this process can open `count` (at most 32) more descriptors now, of the kinds that libzmq needs. Other
/// threads may take them. 0, or errno.
[[nodiscard]] int try_descriptors(std::size_t count) noexcept;

/// As `core::no_descriptor`, for this backend.
[[nodiscard]] error no_descriptor(int number);

/// Makes an epoll descriptor readable with `fd`. False: the system refuses that.
[[nodiscard]] bool watch_fd(int epoll_fd, int fd) noexcept;

}  // namespace accel::zmq
