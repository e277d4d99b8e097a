// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/tcp/tls_bytes.hpp"
#include "control_server_view.hpp"
#include "core/control/client_connection.hpp"
#include "core/control/data_preamble.hpp"
#include "core/net/unix_socket.hpp"
#include "fake_clock.hpp"
#include "key_ring.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/// Ends of TLS connections whose peer forges its records: both ends of both planes.
namespace accel::core {

struct client_connection_view {
    static std::optional<waiting_call::answer> take_answer(waiting_call& of) {
        return std::exchange(of.answer_, std::nullopt);
    }
    static std::uint64_t records(const client_connection& of) {
        return of.stream_.tls() != nullptr ? of.stream_.tls()->traffic().received : 0;
    }
};

}  // namespace accel::core

namespace accel::tests {

using namespace std::chrono_literals;
using bytes = std::vector<std::byte>;

inline void add(bytes& to, std::span<const std::byte> more) {
    to.insert(to.end(), more.begin(), more.end());
}
inline void add_frame(bytes& to, const core::control_message& message) {
    const bytes body = core::encode_control(message);
    const auto length = static_cast<std::uint32_t>(body.size());
    add(to, std::as_bytes(std::span(&length, 1)));
    add(to, body);
}

/// OpenSSL ends a connection after 32 records without data in a row.
constexpr std::uint64_t records_at_once = 33;

class record_victim {
  public:
    record_victim() = default;
    virtual ~record_victim() = default;
    record_victim(const record_victim&) = delete;
    record_victim& operator=(const record_victim&) = delete;

    /// Its peer's end of TLS, before the handshake.
    [[nodiscard]] virtual core::tls_stream meet() = 0;
    [[nodiscard]] int peer() const { return peer_.get(); }
    /// What its peer may say next, over and over.
    [[nodiscard]] virtual bytes more_to_say(std::uint8_t how) = 0;
    /// And in the end.
    [[nodiscard]] virtual bytes last_to_say() { return {}; }
    /// Reads once or in one round, and checks what that may cost.
    virtual void round() = 0;
    [[nodiscard]] virtual bool ended() const = 0;
    /// Rises while it reads.
    [[nodiscard]] virtual std::uint64_t progress() const = 0;
    /// What it took is the beginning of `said`; `all`: and all of it.
    virtual void check(std::span<const std::byte> said, bool all) const = 0;
    /// Its peer has said this.
    virtual void hear(std::span<const std::byte>) {}

  protected:
    void connect(core::unique_fd& own) {
        std::array<int, 2> made{};
        require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made.data()) == 0,
                "there are sockets");
        peer_ = core::unique_fd(made[0]);
        own = core::unique_fd(made[1]);
    }
    core::unique_fd peer_;
};

/// A data connection of either end.
class data_victim : public record_victim {
  public:
    data_victim(bool server, std::size_t room) : server_(server), room_(1 + room) {}
    core::tls_stream meet() override {
        connect(own_);
        const auto& clients = keys().credentials_of(false);
        const auto servers = keys().server->current()->keys;
        stream_ = std::make_shared<core::tls_stream>(
            server_ ? *core::tls_stream::accept(servers, own_.get())
                    : *core::tls_stream::connect(clients, own_.get(), "server", core::data_protocol));
        return server_ ? *core::tls_stream::connect(clients, peer(), "server", core::data_protocol)
                       : *core::tls_stream::accept(servers, peer());
    }
    bytes more_to_say(std::uint8_t how) override {
        bytes out(how * std::size_t{100} + 1);
        for (std::byte& each : out) each = static_cast<std::byte>(next_++ * 7);
        return out;
    }
    void round() override {
        if (ended_) return;
        if (reader_ == nullptr) return shake();
        const std::uint64_t before = stream_->traffic().received;
        std::size_t count = 0;
        const auto outcome = reader_->read(room_, count, false);
        require(stream_->traffic().received - before <= records_at_once, "a read works through few records");
        require(stream_->traffic().renewals <= 1, "the first change of keys is the last");
        ended_ = outcome == tcp::tls_bytes::read_outcome::ended;
        if (outcome == tcp::tls_bytes::read_outcome::some || outcome == tcp::tls_bytes::read_outcome::last) {
            require(count > 0 && count <= room_.size(), "something came");
            add(taken_, std::span(room_).first(count));
        }
    }
    [[nodiscard]] bool ended() const override { return ended_; }
    [[nodiscard]] std::uint64_t progress() const override { return stream_->traffic().received + taken_.size(); }
    void check(std::span<const std::byte> said, bool all) const override {
        require(taken_.size() <= said.size() && std::equal(taken_.begin(), taken_.end(), said.begin()),
                "what comes out is what was put in");
        require(!all || taken_.size() == said.size(), "and all of it");
    }

  private:
    void shake() {
        const core::tls_outcome outcome = stream_->handshake();
        ended_ = outcome == core::tls_outcome::failed || outcome == core::tls_outcome::closed;
        if (outcome == core::tls_outcome::done) reader_ = std::make_unique<tcp::tls_bytes>(stream_, own_.get());
    }
    const bool server_;
    bytes room_;
    core::unique_fd own_;
    std::shared_ptr<core::tls_stream> stream_;
    std::unique_ptr<tcp::tls_bytes> reader_;
    bytes taken_;
    unsigned next_ = 0;
    bool ended_ = false;
};

/// Whole messages that have come over a control connection.
inline std::size_t count_messages(bytes& input) {
    std::size_t count = 0;
    for (;;) {
        std::uint32_t length = 0;
        if (input.size() < sizeof length) return count;
        std::memcpy(&length, input.data(), sizeof length);
        if (input.size() < sizeof length + length) return count;
        input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(sizeof length + length));
        ++count;
    }
}

/// A server's control plane. Each question that it has read is answered.
class control_server_victim : public record_victim {
  public:
    class host : public core::session_host {
      public:
        result<core::session_grant> open_session(const core::session_request&, const core::client_identity&) override {
            return error{status::overloaded, 0, "none"};
        }
        void close_session(std::uint64_t, status) noexcept override {}
        void cancel(std::uint64_t, std::span<const call_id>) noexcept override {}
        std::vector<std::string> offers() const override { return {"tcp"}; }
        result<std::uint32_t> find_target(std::string_view) const override {
            return error{status::not_found, 0, "no such target"};
        }
        core::target_page list_targets(std::string_view) const override { return {}; }
        health_state check_health(std::string_view) const noexcept override { return health_state::serving; }
        result<void> take_connection(core::data_connection&, const core::client_identity&) override {
            return error{status::unauthorized, 0, "no such session"};
        }
        std::optional<core::session_token> token_of(std::uint64_t) const override { return std::nullopt; }
    };

    core::tls_stream meet() override {
        core::unique_fd own;
        connect(own);
        server_.adopt(std::move(own), "10.0.0.1");
        return *core::tls_stream::connect(keys().credentials_of(false), peer(), "server", core::control_protocol);
    }
    bytes more_to_say(std::uint8_t how) override {
        bytes out;
        if (std::exchange(greets_, false)) add(out, std::as_bytes(std::span(core::control_greeting)));
        for (std::uint8_t i = 0; i <= how % 16; ++i, ++asked_)
            if (how % 2 == 0)
                add_frame(out, {asked_ + 1, core::query{}});
            else
                add_frame(out, {asked_ + 1, core::find_target{"model"}});
        return out;
    }
    void round() override {
        const std::uint64_t before = core::control_server_view::records(server_);
        server_.progress(0ms);
        const std::uint64_t after = core::control_server_view::records(server_);
        require(after <= before + 64 * records_at_once, "a round works through few records");
        core::control_server_view::check(server_);
    }
    void hear(std::span<const std::byte> said) override {
        add(heard_, said);
        answers_ += count_messages(heard_);
    }
    [[nodiscard]] bool ended() const override { return core::control_server_view::empty(server_); }
    [[nodiscard]] std::uint64_t progress() const override {
        return core::control_server_view::records(server_) + answers_;
    }
    void check(std::span<const std::byte>, bool all) const override {
        require(answers_ <= asked_ && (!all || answers_ == asked_), "each question has one answer");
    }

  private:
    host host_;
    core::control_server::impl server_{core::listener{},
                                       core::unique_fd(::epoll_create1(EPOLL_CLOEXEC)),
                                       keys().server,
                                       std::chrono::seconds{2},
                                       host_,
                                       core::control_limits{}};
    bytes heard_;
    std::size_t asked_ = 0;
    std::size_t answers_ = 0;
    bool greets_ = true;
};

/// A client's control connection, which waits for an answer.
class control_client_victim : public record_victim {
  public:
    control_client_victim() {
        auto security = std::make_shared<core::security_identity>();
        security->keys = keys().credentials_of(false);
        connection_.emplace(core::server_address{"server", 1, {door().address}, security}, listening_);
        connection_->ask(call_);
    }
    ~control_client_victim() override {
        connection_.reset();
        while (door().accept().open()) {
        }
    }
    core::tls_stream meet() override {
        for (int i = 0; i < 10 && !peer_.open(); ++i) {
            round();
            peer_ = door().accept();
        }
        require(peer_.open(), "the client connects");
        return *core::tls_stream::accept(keys().server->current()->keys, peer());
    }
    bytes more_to_say(std::uint8_t how) override {
        bytes out;
        for (std::uint8_t i = 0; i <= how % 16; ++i) add_frame(out, {0, core::heartbeat{}});
        return out;
    }
    bytes last_to_say() override {
        bytes out;
        add_frame(out, {1, core::offers{{"tcp"}}});
        return out;
    }
    void round() override {
        pollfd item = connection_->poll_item();
        if (item.fd < 0 && peer_.open()) ended_ = true;
        if (ended_) return;
        if (item.fd >= 0) ::poll(&item, 1, 0);
        const std::uint64_t before = core::client_connection_view::records(*connection_);
        connection_->progress(item.revents);
        const std::uint64_t after = core::client_connection_view::records(*connection_);
        require(after <= before + records_at_once, "a round works through few records");
        static_cast<void>(connection_->run_timers());
        if (auto answer = core::client_connection_view::take_answer(*call_)) answered_ = answer->index() != 3;
    }
    [[nodiscard]] bool ended() const override { return ended_; }
    [[nodiscard]] std::uint64_t progress() const override {
        return core::client_connection_view::records(*connection_);
    }
    void check(std::span<const std::byte>, bool all) const override {
        require(!all || answered_, "the question has its answer");
    }

  private:
    /// One for all inputs.
    struct listening_door {
        listening_door() {
            require(::bind(socket.get(), address.get(), address.length) == 0 && ::listen(socket.get(), 64) == 0,
                    "the server listens");
        }
        [[nodiscard]] core::unique_fd accept() const {
            return core::unique_fd(::accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        }
        core::socket_address address = core::unix_address(fmt::format("fuzz {}", ::getpid()));
        core::unique_fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    };
    static const listening_door& door() {
        static const listening_door made;
        return made;
    }
    core::listening_clock listening_;
    std::shared_ptr<core::waiting_call> call_ = std::make_shared<core::waiting_call>(core::query{}, core::never);
    std::optional<core::client_connection> connection_;
    bool answered_ = false;
    bool ended_ = false;
};

}  // namespace accel::tests
