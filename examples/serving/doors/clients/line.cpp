// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/clients/line.hpp"

#include "serving/doors/clients/http_wire.hpp"

#include <array>
#include <cerrno>
#include <cstdint>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::examples::serving::doors::clients {
namespace {

bool is_for_later(int why) noexcept {
    return why == EAGAIN || why == EINTR || why == ENOTCONN || why == EINPROGRESS;
}

}  // namespace

std::optional<line> line::connect(const std::string& where) {
    const std::size_t colon = where.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    if (colon == std::string::npos || inet_pton(AF_INET, where.substr(0, colon).c_str(), &to.sin_addr) != 1)
        return std::nullopt;
    to.sin_port = htons(static_cast<std::uint16_t>(decimal(std::string_view{where}.substr(colon + 1))));
    line out{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (out.fd_ < 0) return std::nullopt;
    const int yes = 1;
    static_cast<void>(setsockopt(out.fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes));
    const bool began = ::connect(out.fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    if (!began && !is_for_later(errno)) return std::nullopt;
    return out;
}

std::optional<std::size_t> line::send_some(std::string_view bytes) const {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (is_for_later(errno)) return 0;
    return std::nullopt;
}

std::optional<std::string_view> line::receive_some() const {
    thread_local std::array<char, 256 << 10> room;
    const ssize_t count = ::recv(fd_, room.data(), room.size(), 0);
    if (count > 0) return std::string_view{room.data(), static_cast<std::size_t>(count)};
    if (count < 0 && is_for_later(errno)) return std::string_view{};
    return std::nullopt;
}

bool line::wait(bool also_write, std::chrono::milliseconds patience) const {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    if (also_write) one.events = POLLIN | POLLOUT;
    const int ready = ::poll(&one, 1, static_cast<int>(patience.count()));
    return ready > 0 || (ready < 0 && errno == EINTR);
}

}  // namespace accel::examples::serving::doors::clients
