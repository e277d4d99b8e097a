// SPDX-License-Identifier: Apache-2.0
#include "hostile/wire.hpp"

#include "backends/tcp/wire.hpp"
#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::hostile {
namespace {

using core::deadline_after;
using core::now;
using core::wait_ready;

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    ::inet_pton(AF_INET, host.c_str(), &out.sin_addr);
    return out;
}

bool over(core::tls_outcome read) {
    return read == core::tls_outcome::closed || read == core::tls_outcome::failed;
}

}  // namespace

unique_fd connect_from(const std::string& source, const target& to) {
    if (core::is_unix_socket(to.host)) {
        auto made = core::connect_to(to.host, to.port, deadline_after(1s));
        return made ? std::move(*made) : unique_fd{};
    }
    unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.open()) return fd;
    const int on = 1;
    // The port is chosen when it connects, so that a storm of connections does not use them up.
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    const sockaddr_in from = address_of(source, 0);
    const sockaddr_in there = address_of(to.host, to.port);
    const auto* bound = reinterpret_cast<const sockaddr*>(&from);
    const auto* peer = reinterpret_cast<const sockaddr*>(&there);
    const bool started = ::bind(fd.get(), bound, sizeof from) == 0 &&
                         (::connect(fd.get(), peer, sizeof there) == 0 || errno == EINPROGRESS);
    const bool connected =
        started && wait_ready(fd.get(), POLLOUT, deadline_after(1s)) == 0 && core::connect_outcome(fd.get()) == 0;
    if (!connected) fd.reset();
    return fd;
}

bool push(int fd, std::span<const std::byte> bytes) {
    const ssize_t put = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return put >= 0 || errno == EAGAIN;
}

bool push(int fd, std::string_view text) {
    return push(fd, std::as_bytes(std::span(text.data(), text.size())));
}

bool discard(int fd) {
    std::array<std::byte, 16 << 10> bytes;
    for (;;) {
        const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got == 0) return false;
        if (got < 0) return errno == EAGAIN || errno == EINTR;
    }
}

bool ends(int fd, std::chrono::nanoseconds within) {
    const auto deadline = deadline_after(within);
    while (discard(fd))
        if (wait_ready(fd, POLLIN, deadline) != 0) return false;
    return true;
}

std::vector<std::byte> frame(std::span<const std::byte> body) {
    const auto length = static_cast<std::uint32_t>(body.size());
    std::vector<std::byte> out(sizeof length + body.size());
    std::memcpy(out.data(), &length, sizeof length);
    std::copy(body.begin(), body.end(), out.begin() + sizeof length);
    return out;
}

std::vector<std::byte> frame(const control_message& message) {
    return frame(core::encode_control(message));
}

std::vector<std::byte> repeated(const std::vector<std::byte>& bytes, std::size_t at_least) {
    std::vector<std::byte> out;
    while (out.size() < at_least) out.insert(out.end(), bytes.begin(), bytes.end());
    return out;
}

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> client_hello(const identity& keys) {
    const core::ssl_ptr ssl(SSL_new(keys->keys->tls()));
    BIO* output = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), output);
    SSL_set_connect_state(ssl.get());
    const auto* protocol = reinterpret_cast<const unsigned char*>(core::control_protocol.data());
    SSL_set_alpn_protos(ssl.get(), protocol, static_cast<unsigned>(core::control_protocol.size()));
    static_cast<void>(SSL_do_handshake(ssl.get()));
    char* data = nullptr;
    const long size = BIO_get_mem_data(output, &data);
    return bytes_of({data, static_cast<std::size_t>(size)});
}

core::hello wish(std::uint32_t slots, std::uint64_t bytes, std::chrono::nanoseconds peer_timeout) {
    core::hello out;
    out.request.scheme = "tcp";
    out.request.wanted = {slots, bytes, bytes};
    out.request.peer_timeout = peer_timeout;
    const tcp::client_wish link;
    const auto described = std::as_bytes(std::span(&link, 1));
    out.request.description.assign(described.begin(), described.end());
    out.sent = now();
    return out;
}

std::optional<wire> wire::open(const std::string& source, const target& to, const identity& keys,
                               std::string_view protocol) {
    unique_fd socket = connect_from(source, to);
    if (!socket.open()) return std::nullopt;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    wire made(std::move(socket));
    if (keys == nullptr || keys->insecure()) return made;
    auto tls = core::tls_stream::connect(keys->keys, made.fd(), to.host, protocol);
    if (!tls) return std::nullopt;
    made.stream_.encrypt(std::move(*tls));
    if (!made.shake_hands()) return std::nullopt;
    return made;
}

bool wire::shake_hands() {
    const auto deadline = deadline_after(1s);
    for (;;) {
        const core::tls_outcome outcome = stream_.tls()->handshake();
        if (outcome == core::tls_outcome::done) return true;
        const bool waits = outcome == core::tls_outcome::wants_read || outcome == core::tls_outcome::wants_write;
        const short event = outcome == core::tls_outcome::wants_write ? POLLOUT : POLLIN;
        if (!waits || wait_ready(fd(), event, deadline) != 0) return false;
    }
}

bool wire::send(std::span<const std::byte> bytes) {
    if (!stream_.send_raw(bytes)) return false;
    const auto deadline = deadline_after(1s);
    while (stream_.wants_to_write()) {
        if (wait_ready(fd(), POLLOUT, deadline) != 0) return false;
        if (stream_.flush() == core::tls_outcome::failed) return false;
    }
    return true;
}

std::optional<control_message> wire::hear(std::chrono::nanoseconds within) {
    const auto deadline = deadline_after(within);
    for (;;) {
        if (const auto bytes = stream_.next_message()) {
            auto message = core::decode_control(*bytes);
            if (message) return std::move(*message);
            continue;
        }
        const auto read = stream_.fill();
        if (over(read)) return std::nullopt;
        if (read == core::tls_outcome::done || stream_.holds_input()) continue;
        if (wait_ready(fd(), POLLIN, deadline) != 0) return std::nullopt;
    }
}

std::optional<core::session_grant> wire::open_session(const core::hello& what) {
    if (!send(control_message{7, what})) return std::nullopt;
    for (;;) {
        auto answer = hear(5s);
        if (!answer) return std::nullopt;
        if (answer->request != 7) continue;
        auto* opened = std::get_if<core::welcome>(&answer->body);
        return opened != nullptr ? std::optional(opened->grant) : std::nullopt;
    }
}

bool wire::discard() {
    for (;;) {
        const auto read = stream_.fill();
        stream_.take(stream_.received().size());
        if (over(read)) return false;
        if (read != core::tls_outcome::done) return true;
    }
}

bool wire::ends(std::chrono::nanoseconds within) {
    const auto deadline = deadline_after(within);
    while (discard())
        if (wait_ready(fd(), POLLIN, deadline) != 0) return false;
    return true;
}

}  // namespace accel::hostile
