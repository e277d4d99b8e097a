// SPDX-License-Identifier: Apache-2.0
#include "core/control/listener.hpp"

#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"

#include <cerrno>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace accel::core {
namespace {

unique_fd open_spare() noexcept {
    return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

unique_fd accept_from(int listening) noexcept {
    return unique_fd(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace

result<listener> listener::open(const std::string& host, std::uint16_t port) {
    auto socket = listen_on(host, port);
    if (!socket) return socket.error();
    listener made;
    made.socket_ = std::move(*socket);
    made.spare_ = open_spare();
    made.port_ = local_port(made.socket_.get());
    return made;
}

listener::outcome listener::accept(unique_fd& out) noexcept {
    out = accept_from(socket_.get());
    if (out.open()) return outcome::accepted;
    shortage_ = out.failure();
    if (!is_shortage(shortage_)) return outcome::none;
    // Else the socket would stay readable, and this thread would spin.
    spare_.reset();
    accept_from(socket_.get()).reset();
    spare_ = open_spare();
    return outcome::shed;
}

std::uint32_t descriptor_limit() noexcept {
    rlimit limit{};
    const bool known =
        ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < std::numeric_limits<std::uint32_t>::max();
    return known ? static_cast<std::uint32_t>(limit.rlim_cur) : std::numeric_limits<std::uint32_t>::max();
}

}  // namespace accel::core
