// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/listener.hpp"
#include "hostile/arena.hpp"

#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <thread>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

/// A server spoken by hand, for what it can do to clients of the library.
namespace accel::hostile {

/// The server's end of a connection without keys.
struct far_end {
    core::control_stream stream;
    const std::atomic<bool>& go;

    /// False: it has ended, or the test has.
    bool read_more() {
        if (!go.load()) return false;
        static_cast<void>(core::wait_ready(stream.fd(), POLLIN, core::deadline_after(20ms)));
        const auto read = stream.fill();
        return read != core::tls_outcome::closed && read != core::tls_outcome::failed;
    }
    [[nodiscard]] bool greeted() {
        while (stream.received().size() < core::greeting_bytes)
            if (!read_more()) return false;
        const bool control =
            std::memcmp(stream.received().data(), core::control_greeting.data(), core::greeting_bytes) == 0;
        if (control) stream.take(core::greeting_bytes);
        return control;
    }
    /// The next message of this kind.
    template <class Body>
    [[nodiscard]] std::optional<control_message> await() {
        for (;;) {
            if (const auto bytes = stream.next_message()) {
                auto message = core::decode_control(*bytes);
                if (message && std::holds_alternative<Body>(message->body)) return *message;
                continue;
            }
            if (!read_more()) return std::nullopt;
        }
    }
    void say(const std::vector<std::byte>& bytes) const { push(stream.fd(), bytes); }
    void say(const control_message& message) const { say(frame(message)); }
    /// The same again and again, until the client leaves.
    void pour(const std::vector<std::byte>& bytes) const {
        const auto many = repeated(bytes, 64 << 10);
        for (std::span<const std::byte> rest; go.load() && discard(stream.fd());) {
            if (rest.empty()) rest = many;
            const ssize_t put = ::send(stream.fd(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (put > 0) rest = rest.subspan(static_cast<std::size_t>(put));
            if (put >= 0) continue;
            if (errno != EAGAIN) return;
            static_cast<void>(core::wait_ready(stream.fd(), POLLOUT, core::deadline_after(2ms)));
        }
    }
    void stay() const {
        while (go.load() && discard(stream.fd())) std::this_thread::sleep_for(2ms);
    }
};

/// Listens, and treats each connection as the test says, each on a thread of its own.
class far_server {
  public:
    explicit far_server(std::function<void(far_end&)> treat) : treat_(std::move(treat)) {
        auto opened = core::listener::open(tests::own_loopback(), 0);
        if (!opened) throw std::runtime_error(opened.error().message);
        door_.emplace(std::move(*opened));
        thread_ = std::thread([this] { run(); });
    }
    ~far_server() {
        go_.store(false);
        thread_.join();
        for (std::thread& each : guests_) each.join();
    }
    far_server(const far_server&) = delete;
    far_server& operator=(const far_server&) = delete;
    [[nodiscard]] std::string uri() {
        return fmt::format("tcp://{}:{}?insecure=true", tests::own_loopback(), door_->port());
    }

  private:
    void run() {
        while (go_.load()) {
            unique_fd socket;
            if (core::wait_ready(door_->fd(), POLLIN, core::deadline_after(10ms)) != 0) continue;
            if (door_->accept(socket) != core::listener::outcome::accepted) continue;
            guests_.emplace_back([this, fd = socket.release()] {
                far_end end{core::control_stream(unique_fd(fd)), go_};
                treat_(end);
            });
        }
    }
    std::function<void(far_end&)> treat_;
    std::optional<core::listener> door_;
    std::atomic<bool> go_{true};
    std::thread thread_;
    std::vector<std::thread> guests_;
};

/// Grants what is asked for.
[[nodiscard]] inline control_message welcome_to(const control_message& asked,
                                                core::nanoseconds peer_timeout = patience(500ms)) {
    const auto& wish = std::get<core::hello>(asked.body);
    core::welcome body;
    body.grant.session_id = 99;
    body.grant.granted = wish.request.wanted;
    body.grant.peer_timeout = peer_timeout;
    body.clocks = {wish.sent, core::now(), core::now()};
    return {asked.request, body};
}

}  // namespace accel::hostile
