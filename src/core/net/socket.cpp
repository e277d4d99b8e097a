// SPDX-License-Identifier: Apache-2.0
#include "core/net/socket.hpp"

#include "core/net/descriptor_error.hpp"
#include "core/net/host_names.hpp"
#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

namespace accel::core {
namespace {

constexpr int listen_backlog = 4096;
constexpr std::chrono::hours longest_wait{1};

/// How often a connection is tried for which there is no room.
constexpr std::chrono::microseconds room_interval{200};

/// The most unsent bytes in the OS: a small message cannot overtake those.
constexpr int unsent_bytes_low_water = 512 << 10;

/// A control connection whose peer vanished silently ends after about 10 + 3 x 5 seconds.
constexpr int keepalive_idle_s = 10;
constexpr int keepalive_interval_s = 5;
constexpr int keepalive_probes = 3;
constexpr unsigned unacknowledged_ms = 15'000;

std::string system_text(int number) {
    return std::strerror(number);
}

int new_socket(int family, unique_fd& out) noexcept {
    out = unique_fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    return out.open() ? 0 : errno;
}

/// Every address of this machine: one socket of IPv6 that takes IPv4 as well; without IPv6, one of IPv4.
std::vector<socket_address> any_addresses(std::uint16_t port) {
    std::vector<socket_address> out(2);
    sockaddr_in6 both{};
    both.sin6_family = AF_INET6;
    both.sin6_port = htons(port);
    sockaddr_in old{};
    old.sin_family = AF_INET;
    old.sin_port = both.sin6_port;
    std::memcpy(&out[0].storage, &both, out[0].length = sizeof both);
    std::memcpy(&out[1].storage, &old, out[1].length = sizeof old);
    return out;
}

int bind_and_listen(const socket_address& address, unique_fd& out) noexcept {
    if (const int failure = new_socket(address.storage.ss_family, out); failure != 0) return failure;
    const int on = 1;
    const int off = 0;
    const bool v6 = address.storage.ss_family == AF_INET6;
    const bool ready = ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       (!v6 || ::setsockopt(out.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) &&
                       ::bind(out.get(), address.get(), address.length) == 0 &&
                       ::listen(out.get(), listen_backlog) == 0;
    return ready ? 0 : errno;
}

std::string_view advice_to_listen(const std::string& host, int number) {
    if (number == EACCES) return "choose a port above 1023, or give the process CAP_NET_BIND_SERVICE";
    if (number == EADDRNOTAVAIL) return "name an address of this machine, or * for all its addresses";
    if (number == EADDRINUSE) return is_unix_socket(host) ? "choose another name" : "choose another host or port";
    return advice_for(number);
}

std::string_view advice_to_connect(int number) {
    if (number == ENETUNREACH || number == EHOSTUNREACH) return "check this machine's routes and the firewall";
    if (number == EADDRNOTAVAIL) return "no local port is free, or this machine has no address of that family";
    if (is_shortage(number) || is_forbidden(number)) return advice_for(number);
    return "is the server running there?";
}

/// The end of an equal part of the time left, so that a silent address leaves some for the others.
nanoseconds end_of_share(nanoseconds deadline, std::size_t parts) noexcept {
    const nanoseconds start = now();
    return deadline <= start ? deadline : start + (deadline - start) / static_cast<std::int64_t>(parts);
}

/// A Unix socket takes no more connections (EAGAIN) while as many as its server allows wait to be taken up, and gives
/// no sign when there is room again.
int start_where_there_is_room(const socket_address& address, nanoseconds deadline, unique_fd& out) noexcept {
    for (;;) {
        const int failure = start_connecting(address, out);
        if (failure != EAGAIN || address.storage.ss_family != AF_UNIX) return failure;
        if (now() >= deadline) return ETIMEDOUT;
        std::this_thread::sleep_for(room_interval);
    }
}

/// 0, or why this address cannot be reached.
int connect_one(const socket_address& address, nanoseconds deadline, unique_fd& out) noexcept {
    unique_fd fd;
    if (const int failure = start_where_there_is_room(address, deadline, fd); failure != 0) return failure;
    if (const int failure = wait_ready(fd.get(), POLLOUT, deadline); failure != 0) return failure;
    if (const int failure = connect_outcome(fd.get()); failure != 0) return failure;
    out = std::move(fd);
    return 0;
}

/// Where nobody listens at a port from which the OS chooses those of clients, it may choose just that one: TCP then
/// connects the socket to itself, and it would keep the port from its server.
bool is_connected_to_itself(int fd) noexcept {
    sockaddr_storage own{};
    sockaddr_storage peer{};
    socklen_t own_size = sizeof own;
    socklen_t peer_size = sizeof peer;
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
           ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own.ss_family != AF_UNIX &&
           own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

template <class Value>
void set_option(int fd, int level, int option, const Value& value) noexcept {
    // A failure makes the connection slower or less watched, but not wrong.
    ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port, bool to_listen,
                                            nanoseconds deadline, const std::stop_token& stopped) {
    if (is_unix_socket(host)) return std::vector{unix_address(std::string_view{host}.substr(1))};
    if (to_listen && (host.empty() || host == "*")) return any_addresses(port);
    name_outcome known = ask_resolver(host.c_str(), AI_NUMERICHOST | (to_listen ? AI_PASSIVE : 0));
    if (known.failure == EAI_NONAME) {
        auto found = look_up(host, deadline, stopped);
        if (!found) return found;
        known = {0, 0, std::move(*found)};
    }
    if (known.failure != 0) return cannot_resolve(host, known);
    for (socket_address& each : known.addresses) each.set_port(port);
    return std::move(known.addresses);
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
    if (is_unix_socket(host)) return fmt::format("shm://{}", host.substr(1));
    const bool bracketed = host.find(':') != std::string::npos;
    return bracketed ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

result<unique_fd> listen_on(const std::string& host, std::uint16_t port) {
    auto addresses = resolve(host, port, true, deadline_after(name_patience));
    if (!addresses) return addresses.error();
    int last = EADDRNOTAVAIL;
    for (const socket_address& each : *addresses) {
        unique_fd made;
        last = bind_and_listen(each, made);
        if (last == 0) return made;
        if (!is_missing_family(last)) break;  // another program has this address, say
    }
    return error{status::system_error, last,
                 fmt::format("cannot listen on {}: {}; {}", host_and_port(host, port), system_text(last),
                             advice_to_listen(host, last))};
}

std::string host_to_reach(const std::string& host) {
    if (host == "*") return "127.0.0.1";
    const name_outcome numeric = ask_resolver(host.c_str(), AI_NUMERICHOST);
    const std::string address = numeric.addresses.empty() ? host : numeric_host(numeric.addresses.front());
    if (address == "0.0.0.0") return "127.0.0.1";
    return address == "::" ? "::1" : host;
}

std::uint16_t local_port(int fd) noexcept {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
    if (bound.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
    return bound.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port) : std::uint16_t{0};
}

bool is_missing_family(int number) noexcept {
    return number == EAFNOSUPPORT || number == EADDRNOTAVAIL;
}

std::string numeric_host(const socket_address& address) {
    std::array<char, NI_MAXHOST> host{};
    const bool ip = address.storage.ss_family == AF_INET || address.storage.ss_family == AF_INET6;
    const bool known =
        ip && ::getnameinfo(address.get(), address.length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) == 0;
    return known ? host.data() : "";
}

std::string peer_address(int fd) {
    socket_address address{{}, sizeof(sockaddr_storage)};
    const bool known = ::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0;
    if (known && address.storage.ss_family == AF_UNIX) return "this host";
    std::string text = known ? numeric_host(address) : "";
    if (text.empty()) return "an unknown address";
    // As IPv4 clients appear on a socket of both families.
    constexpr std::string_view mapped = "::ffff:";
    const bool ipv4 = text.starts_with(mapped) && text.find('.') != std::string::npos;
    return ipv4 ? text.substr(mapped.size()) : text;
}

std::string network_of(std::string_view address) {
    constexpr std::size_t host_bytes = 8;
    in6_addr parsed{};
    const std::string text(address.substr(0, address.find('%')));
    if (::inet_pton(AF_INET6, text.c_str(), &parsed) != 1) return {};
    std::fill_n(std::end(parsed.s6_addr) - host_bytes, host_bytes, std::uint8_t{0});
    std::array<char, INET6_ADDRSTRLEN> out{};
    (void)::inet_ntop(AF_INET6, &parsed, out.data(), out.size());
    return std::string(out.data()) + "/64";
}

int start_connecting(const socket_address& address, unique_fd& out) noexcept {
    unique_fd fd;
    if (const int failure = new_socket(address.storage.ss_family, fd); failure != 0) return failure;
    const bool started =
        ::connect(fd.get(), address.get(), address.length) == 0 || errno == EINPROGRESS || errno == EINTR;
    if (!started) return errno;
    out = std::move(fd);
    return 0;
}

int connect_outcome(int fd) noexcept {
    int outcome = 0;
    socklen_t size = sizeof outcome;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &outcome, &size) != 0) return errno;
    return outcome == 0 && is_connected_to_itself(fd) ? ECONNREFUSED : outcome;
}

int wait_ready(int fd, short events, nanoseconds deadline) noexcept {
    for (;;) {
        // After the deadline it still polls once.
        const nanoseconds left = std::clamp<nanoseconds>(deadline - now(), nanoseconds{0}, longest_wait);
        pollfd waited{fd, events, 0};
        const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        const int ready = ::poll(&waited, 1, static_cast<int>(left_ms));
        if (ready > 0) return 0;
        if (ready < 0 && errno != EINTR) return errno;
        if (now() >= deadline) return ETIMEDOUT;
    }
}

error cannot_connect(const std::string& where, int number) {
    if (number == EMFILE || number == ENFILE) return no_descriptor("to connect to " + where, number);
    const status code = is_shortage(number)    ? status::out_of_memory
                        : is_forbidden(number) ? status::system_error
                                               : status::peer_lost;
    return {code, number,
            fmt::format("cannot connect to {} ({}); {}", where, system_text(number), advice_to_connect(number))};
}

result<unique_fd> connect_to(const std::string& host, std::uint16_t port, nanoseconds deadline) {
    auto addresses = resolve(host, port, false, deadline);
    if (!addresses) return addresses.error();
    int last = EADDRNOTAVAIL;
    std::size_t left = addresses->size();
    for (const socket_address& each : *addresses) {
        unique_fd fd;
        last = connect_one(each, end_of_share(deadline, left--), fd);
        if (last == 0) {
            tune_data_socket(fd.get());
            return fd;
        }
    }
    const std::string where = host_and_port(host, port);
    if (last == ETIMEDOUT)
        return error{status::timed_out, last,
                     fmt::format("no connection to {} in time; {}", where,
                                 is_unix_socket(host) ? "its server accepts no more connections now"
                                                      : "is a firewall in between?")};
    return cannot_connect(where, last);
}

bool let_reads_sleep(int fd) noexcept {
    const timeval limit{0, std::chrono::microseconds(sleeping_read_limit).count()};
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
           ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
           ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

void tune_data_socket(int fd) noexcept {
    // Buffer sizes stay with the OS's autotuning.
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_bytes_low_water);
}

bool pace_socket(int fd, bit_rate rate) noexcept {
    const std::uint64_t bytes_per_second = rate.bits_per_second / 8;
    return ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof bytes_per_second) == 0;
}

error cannot_pace(int number) {
    return {status::unsupported, number,
            fmt::format("this OS cannot pace sockets ({}); leave out pacing", system_text(number))};
}

result<void> probe_pacing() {
    const unique_fd tried(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!tried.open()) return no_descriptor("to try pacing", tried.failure());
    if (pace_socket(tried.get(), {8'000'000})) return {};
    return cannot_pace(errno);
}

void tune_control_socket(int fd) noexcept {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
}

}  // namespace accel::core
