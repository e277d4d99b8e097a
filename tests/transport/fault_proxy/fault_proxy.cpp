// SPDX-License-Identifier: Apache-2.0
#include "fault_proxy.hpp"

#include "proxy_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace accel::tests {

namespace {

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
        throw std::runtime_error(host + " is not an IPv4 address");
    return address;
}

bool bind_to(int fd, const std::string& host, std::uint16_t port) {
    const int yes = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in address = address_of(host, port);
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

int listen_on(const std::string& host, std::uint16_t port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind_to(fd, host, port) && listen(fd, 64) == 0) return fd;
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw std::runtime_error("cannot listen on " + host + ":" + std::to_string(port) + ": " + reason);
}

}  // namespace

std::uint16_t free_port(const std::vector<std::string>& hosts) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        std::vector<int> fds;
        std::uint16_t port = 0;
        const bool free = std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
            const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            fds.push_back(fd);
            if (!bind_to(fd, host, port)) return false;
            sockaddr_in bound{};
            socklen_t size = sizeof bound;
            (void)getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
            port = ntohs(bound.sin_port);
            return true;
        });
        for (const int fd : fds) close(fd);
        if (free) return port;
    }
    throw std::runtime_error("no port is free on all hosts");
}

fault_proxy::fault_proxy(const std::string& listen_host, const std::string& target_host,
                         std::vector<std::uint16_t> ports)
    : target_host_(target_host), ports_(std::move(ports)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    accepted_since_.resize(ports_.size());
    for (const std::uint16_t port : ports_) listeners_.push_back(listen_on(listen_host, port));
    thread_ = std::thread([this] { run(); });
}

fault_proxy::~fault_proxy() {
    stop_ = true;
    wake();
    thread_.join();
    for (const int fd : listeners_) close(fd);
    close(wake_fd_);
}

void fault_proxy::set(const fault& next) {
    const std::lock_guard lock(mutex_);
    next_ = next;
    accepted_since_.assign(ports_.size(), 0);
}

void fault_proxy::wake() const noexcept {
    const std::uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof one);
}

void fault_proxy::accept_on(std::size_t route) {
    const int client = accept4(listeners_[route], nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) return;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = address_of(target_host_, ports_[route]);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        close(server);
        close(client);
        return;
    }
    const int yes = 1;
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    ++accepted_;
    const std::lock_guard lock(mutex_);
    fault mine = next_;
    const std::size_t number = accepted_since_[route]++;
    const bool other = mine.connection != ~std::size_t{0} && mine.connection != number;
    if (mine.route != route || other) mine.kind = fault_kind::none;
    connections_.push_back(std::make_unique<proxy_connection>(client, server, mine));
}

void fault_proxy::run() {
    std::vector<pollfd> fds;
    while (!stop_) {
        fds.assign(1, pollfd{.fd = wake_fd_, .events = POLLIN, .revents = 0});
        for (const int listener : listeners_) fds.push_back({.fd = listener, .events = POLLIN, .revents = 0});
        proxy_clock::duration pause = std::chrono::hours{1};
        for (const auto& one : connections_) {
            pollfd client{.fd = one->client, .events = 0, .revents = 0};
            pollfd server{.fd = one->server, .events = 0, .revents = 0};
            one->up.interest(client, server, pause);
            one->down.interest(server, client, pause);
            // A descriptor of no interest must not wake us with its hang-up for ever.
            if (client.events == 0) client.fd = -1;
            if (server.events == 0) server.fd = -1;
            fds.push_back(client);
            fds.push_back(server);
        }
        const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(pause).count();
        (void)::poll(fds.data(), fds.size(), static_cast<int>(timeout));
        std::uint64_t woken = 0;
        (void)!read(wake_fd_, &woken, sizeof woken);
        std::uint64_t struck = 0;
        const bool cut = cut_all_.exchange(false);
        for (auto& one : connections_) {
            one->reset = one->reset || cut;
            if (cut || !one->move(struck)) one.reset();
        }
        std::erase(connections_, nullptr);
        struck_ += struck;
        for (std::size_t route = 0; route < listeners_.size(); ++route)
            if ((fds[1 + route].revents & POLLIN) != 0) accept_on(route);
    }
    connections_.clear();
}

}  // namespace accel::tests
