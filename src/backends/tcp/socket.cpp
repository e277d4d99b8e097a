#include "backends/tcp/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::tcp {
namespace {

constexpr int listen_backlog = 4096;
constexpr std::chrono::hours longest_wait{1};

/// Bytes the kernel holds that it has not sent: what a small message cannot overtake any more.
constexpr int unsent_bytes_low_water = 512 << 10;

struct free_addresses {
    void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using address_list = std::unique_ptr<addrinfo, free_addresses>;

std::string system_text(int number) {
    return std::strerror(number);
}

result<address_list> resolve(const std::string& host, std::uint16_t port, bool to_listen) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
    const bool any = host.empty() || host == "*";
    addrinfo* found = nullptr;
    const int failure =
        ::getaddrinfo(any ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
    address_list list(found);
    if (failure != 0) {
        return error{status::invalid_argument, failure,
                     fmt::format("tcp: cannot resolve host '{}' ({}); check the name or give an address",
                                 host, ::gai_strerror(failure))};
    }
    return list;
}

result<unique_fd> bind_and_listen(const addrinfo& address) {
    unique_fd fd(
        ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
    const int on = 1;
    const bool ready = fd.open() && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       ::listen(fd.get(), listen_backlog) == 0;
    if (!ready) {
        return error{status::system_error, errno, system_text(errno)};
    }
    return fd;
}

/// Waits until `fd` is writable; ETIMEDOUT once the deadline has passed.
int wait_writable(int fd, core::nanoseconds deadline) noexcept {
    for (;;) {
        const core::nanoseconds left =
            std::min<core::nanoseconds>(deadline - core::now(), core::nanoseconds(longest_wait));
        if (left.count() <= 0) {
            return ETIMEDOUT;
        }
        pollfd waited{fd, POLLOUT, 0};
        const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        const int ready = ::poll(&waited, 1, static_cast<int>(left_ms));
        if (ready > 0) {
            return 0;
        }
        if (ready < 0 && errno != EINTR) {
            return errno;
        }
    }
}

/// An equal part of the time left, so that a silent address leaves some for the others.
core::nanoseconds share_of(core::nanoseconds deadline, int parts) noexcept {
    const core::nanoseconds start = core::now();
    return deadline <= start ? deadline : start + (deadline - start) / parts;
}

/// 0, or why this address cannot be reached.
int connect_one(const addrinfo& address, core::nanoseconds deadline, unique_fd& out) noexcept {
    unique_fd fd(
        ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
    if (!fd.open()) {
        return errno;
    }
    if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
        if (errno != EINPROGRESS && errno != EINTR) {
            return errno;
        }
        if (const int failure = wait_writable(fd.get(), deadline); failure != 0) {
            return failure;
        }
        int outcome = 0;
        socklen_t size = sizeof outcome;
        if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &outcome, &size) != 0) {
            return errno;
        }
        if (outcome != 0) {
            return outcome;
        }
    }
    out = std::move(fd);
    return 0;
}

}  // namespace

void unique_fd::reset() noexcept {
    if (fd_ >= 0) {
        ::close(fd_);
        fd_ = -1;
    }
}

result<unique_fd> listen_on(const std::string& host, std::uint16_t port) {
    auto addresses = resolve(host, port, true);
    if (!addresses) {
        return addresses.error();
    }
    error last{status::system_error, 0, "no address"};
    for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
        auto made = bind_and_listen(*a);
        if (made) {
            return made;
        }
        last = made.error();
    }
    return error{
        last.code, last.native,
        fmt::format("tcp: cannot listen for data on {} port {} ({}); choose another host or data_port", host,
                    port, last.message)};
}

std::uint16_t local_port(int fd) noexcept {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
        return 0;
    }
    if (bound.ss_family == AF_INET6) {
        return ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
    }
    return bound.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port)
                                      : std::uint16_t{0};
}

result<unique_fd> connect_to(const std::string& host, std::uint16_t port, core::nanoseconds deadline) {
    auto addresses = resolve(host, port, false);
    if (!addresses) {
        return addresses.error();
    }
    int left = 0;
    for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
        ++left;
    }
    int last = EADDRNOTAVAIL;
    for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next, --left) {
        unique_fd fd;
        last = connect_one(*a, share_of(deadline, left), fd);
        if (last == 0) {
            tune_data_socket(fd.get());
            return fd;
        }
    }
    if (last == ETIMEDOUT) {
        return error{
            status::timed_out, last,
            fmt::format("tcp: no connection to {} port {} in time; is a firewall in between?", host, port)};
    }
    return error{status::peer_lost, last,
                 fmt::format("tcp: cannot connect to {} port {} ({}); is the server running there?", host,
                             port, system_text(last))};
}

result<void> send_all(int fd, const void* data, std::size_t size, core::nanoseconds deadline) {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t sent = ::send(fd, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            from += sent;
            size -= static_cast<std::size_t>(sent);
            continue;
        }
        int failure = errno;
        if (failure == EAGAIN || failure == EWOULDBLOCK) {
            failure = wait_writable(fd, deadline);
        }
        if (failure != 0 && failure != EINTR) {
            return error{
                failure == ETIMEDOUT ? status::timed_out : status::peer_lost, failure,
                fmt::format("tcp: the server did not take the session's first bytes ({}); connect again",
                            system_text(failure))};
        }
    }
    return {};
}

bool let_reads_sleep(int fd) noexcept {
    const timeval limit{0, std::chrono::microseconds(sleeping_read_limit).count()};
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
           ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
           ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

void tune_data_socket(int fd) noexcept {
    // Failures leave a slower connection, not a wrong one. Buffer sizes stay with the kernel's autotuning.
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes_low_water, sizeof unsent_bytes_low_water);
}

}  // namespace accel::tcp
