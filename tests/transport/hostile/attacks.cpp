// SPDX-License-Identifier: Apache-2.0
#include "hostile/attacks.hpp"

#include "backends/tcp/wire.hpp"
#include "core/net/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::hostile {
namespace {

using core::deadline_after;
using core::tls_outcome;
using core::wait_ready;

/// A moment without work, so that an attack by many idle connections is not one by processor time.
constexpr auto idle_moment = 2ms;

/// A handshake under way.
struct handshake {
    unique_fd socket;
    std::optional<core::tls_stream> tls;
    bool over = false;

    void start(const std::string& source, const target& at, const identity& keys) {
        tls.reset();
        socket = connect_from(source, at);
        over = !socket.open();
        if (over) return;
        auto made = core::tls_stream::connect(keys->keys, socket.get(), at.host, core::control_protocol);
        over = !made.ok();
        if (made) tls.emplace(std::move(*made));
    }
    void progress() {
        const tls_outcome outcome = tls->handshake();
        if (outcome == tls_outcome::wants_read || outcome == tls_outcome::wants_write) return;
        std::size_t sent = 0;
        if (outcome == tls_outcome::done)
            static_cast<void>(tls->write(std::as_bytes(std::span(core::control_greeting)), sent));
        over = true;
    }
};

/// What was written into a memory BIO.
std::vector<std::byte> written(BIO* kept) {
    char* data = nullptr;
    const long length = BIO_get_mem_data(kept, &data);
    return bytes_of({data, static_cast<std::size_t>(length)});
}

constexpr std::size_t dripped_bytes = std::size_t{1} << 20;

core::hello wish_for_encryption(std::size_t bytes) {
    core::hello out = wish(1, bytes, 60s);
    const tcp::client_wish link{.flags = tcp::client_wish::encrypted};
    const auto described = std::as_bytes(std::span(&link, 1));
    out.request.description.assign(described.begin(), described.end());
    return out;
}

std::vector<std::byte> large_request(std::size_t bytes) {
    core::slot_header header;
    header.generation = 1;
    header.length = bytes;
    header.response_room = 1024;
    header.deadline_ns = core::never.count();
    const auto head = std::as_bytes(std::span(&header, 1));
    std::vector<std::byte> out(head.begin(), head.end());
    out.resize(out.size() + bytes);
    return out;
}

/// An encrypted one, made with its session's key.
class data_connection {
  public:
    data_connection(const std::string& source, const target& at, const identity& keys, const core::session_grant& to)
        : socket_(connect_from(source, at)) {
        auto made = core::tls_stream::connect(keys->keys, socket_.get(), at.host, core::data_protocol,
                                              core::session_key{to.session_id, to.token});
        if (!made) return;
        tls_.emplace(std::move(*made));
        const auto deadline = deadline_after(2s);
        while (tls_->handshake() != tls_outcome::done)
            if (wait_ready(socket_.get(), POLLIN, deadline) != 0) return;
        core::data_preamble shown;
        shown.session_id = to.session_id;
        shown.token = to.token;
        std::size_t sent = 0;
        open_ = tls_->write(std::as_bytes(std::span(&shown, 1)), sent) == tls_outcome::done;
    }
    [[nodiscard]] bool open() const { return open_; }
    [[nodiscard]] int fd() const { return socket_.get(); }
    /// Nothing else is written from now on.
    [[nodiscard]] std::vector<std::byte> one_byte_records(const std::vector<std::byte>& all) {
        BIO* kept = BIO_new(BIO_s_mem());
        SSL_set0_wbio(tls_->get(), kept);
        std::size_t sent = 0;
        for (const std::byte& each : all)
            if (tls_->write({&each, 1}, sent) != tls_outcome::done) break;
        return written(kept);
    }

  private:
    unique_fd socket_;
    std::optional<core::tls_stream> tls_;
    bool open_ = false;
};

}  // namespace

std::vector<std::vector<std::byte>> random_texts(unsigned seed, int count) {
    std::minstd_rand random{seed};
    std::vector<std::vector<std::byte>> all;
    for (int i = 0; i < count; ++i) {
        std::vector<std::byte> bytes(1 + random() % 3000);
        for (std::byte& each : bytes) each = static_cast<std::byte>(random());
        all.push_back(std::move(bytes));
    }
    return all;
}

std::vector<std::byte> shown(std::uint64_t session_id, const core::session_token& token) {
    core::data_preamble made;
    made.session_id = session_id;
    made.token = token;
    const auto bytes = std::as_bytes(std::span(&made, 1));
    return {bytes.begin(), bytes.end()};
}

attack storm(const std::string& source) {
    return [source](const target& at, const std::atomic<bool>& go) {
        while (go.load()) connect_from(source, at).reset();
    };
}

attack keep_open(const std::string& source, std::size_t count, std::vector<std::byte> bytes) {
    return [=](const target& at, const std::atomic<bool>& go) {
        std::vector<unique_fd> all(count);
        while (go.load()) {
            for (unique_fd& each : all) {
                if (!go.load()) return;
                if (each.open() && discard(each.get())) continue;
                each = connect_from(source, at);
                if (each.open()) push(each.get(), bytes);
            }
            std::this_thread::sleep_for(idle_moment);
        }
    };
}

attack drip(const std::string& source, std::size_t count, std::vector<std::byte> bytes,
            std::chrono::milliseconds pause) {
    return [=](const target& at, const std::atomic<bool>& go) {
        struct victim_of_one {
            unique_fd socket;
            std::size_t sent = 0;
        };
        std::vector<victim_of_one> all(count);
        while (go.load()) {
            for (auto& each : all) {
                if (!each.socket.open() || !discard(each.socket.get())) each = {connect_from(source, at), 0};
                const auto next = std::span(bytes).subspan(each.sent++ % bytes.size(), 1);
                if (each.socket.open()) push(each.socket.get(), next);
            }
            std::this_thread::sleep_for(pause);
        }
    };
}

attack send_and_leave(const std::string& source, std::vector<std::vector<std::byte>> all) {
    return [source, all = std::move(all)](const target& at, const std::atomic<bool>& go) {
        for (std::size_t i = 0; go.load(); ++i) {
            const unique_fd fd = connect_from(source, at);
            if (!fd.open()) continue;
            push(fd.get(), all[i % all.size()]);
            static_cast<void>(ends(fd.get(), 2ms));
        }
    };
}

attack flood(const std::string& source, identity keys, std::vector<std::byte> bytes, bool reads) {
    const std::vector<std::byte> many = repeated(bytes, 16 << 10);
    return [=](const target& at, const std::atomic<bool>& go) {
        while (go.load()) {
            auto one = wire::open(source, at, keys);
            if (!one || !one->send(core::control_greeting)) continue;
            while (go.load()) {
                if (!one->stream().wants_to_write() && !one->stream().send_raw(many)) break;
                if (one->stream().flush() == core::tls_outcome::failed) break;
                if (reads && !one->discard()) break;
                if (one->stream().wants_to_write())
                    static_cast<void>(wait_ready(one->fd(), POLLOUT, deadline_after(5ms)));
            }
        }
    };
}

attack shake_hands(const std::string& source, identity keys, std::size_t at_once) {
    return [=](const target& at, const std::atomic<bool>& go) {
        std::vector<handshake> all(at_once);
        for (handshake& each : all) each.over = true;
        std::vector<pollfd> items(at_once);
        while (go.load()) {
            for (std::size_t i = 0; i < at_once; ++i) {
                if (all[i].over) all[i].start(source, at, keys);
                if (!all[i].over) all[i].progress();
                items[i] = {all[i].over ? -1 : all[i].socket.get(), POLLIN, 0};
            }
            ::poll(items.data(), items.size(), 2);
        }
    };
}

attack renew_keys(const std::string& source, identity keys) {
    return [=](const target& at, const std::atomic<bool>& go) {
        while (go.load()) {
            auto one = wire::open(source, at, keys);
            if (!one || !one->send(core::control_greeting)) continue;
            SSL* ssl = one->stream().tls()->get();
            BIO* kept = BIO_new(BIO_s_mem());
            SSL_set0_wbio(ssl, kept);
            for (int i = 0; i < 2400; ++i)
                if (SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1) break;
            push(one->fd(), written(kept));
        }
    };
}

attack drip_records(const std::string& source, identity keys) {
    return [=](const target& at, const std::atomic<bool>& go) {
        while (go.load()) {
            auto control = wire::open(source, at, keys);
            if (!control || !control->send(core::control_greeting)) continue;
            const auto grant = control->open_session(wish_for_encryption(dripped_bytes));
            if (!grant) continue;
            data_connection made(source, at, keys, *grant);
            if (!made.open()) continue;
            const std::vector<std::byte> records = made.one_byte_records(large_request(dripped_bytes));
            std::span<const std::byte> left(records);
            while (go.load() && !left.empty() && control->discard()) {
                const ssize_t sent = ::send(made.fd(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent < 0 && errno != EAGAIN) break;
                left = left.subspan(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
                control->send(control_message{0, core::heartbeat{}});
                static_cast<void>(wait_ready(made.fd(), POLLOUT, deadline_after(10ms)));
            }
        }
    };
}

attack ask_for_sessions(const std::string& source, identity keys, std::size_t connections) {
    return [=](const target& at, const std::atomic<bool>& go) {
        std::vector<std::optional<wire>> all(connections);
        const auto many = repeated(frame(control_message{1, wish()}), 32 << 10);
        while (go.load()) {
            for (auto& each : all) {
                if (!go.load()) return;
                if (!each) {
                    each = wire::open(source, at, keys);
                    if (each && !each->send(core::control_greeting)) each.reset();
                    continue;
                }
                const bool broken = (!each->stream().wants_to_write() && !each->stream().send_raw(many)) ||
                                    each->stream().flush() == tls_outcome::failed;
                if (broken) each.reset();
            }
            std::this_thread::sleep_for(idle_moment);
        }
    };
}

attack come_from_everywhere() {
    return [](const target& at, const std::atomic<bool>& go) {
        constexpr std::size_t addresses = 3'000;
        std::vector<unique_fd> all(addresses);
        auto next = std::chrono::steady_clock::now();
        for (std::size_t i = 0; go.load(); i = (i + 1) % addresses) {
            all[i] = connect_from(fmt::format("127.77.{}.{}", i / 250, 1 + i % 250), at);
            std::this_thread::sleep_until(next += 1ms);
        }
    };
}

attack hoard_sessions(const std::string& source, identity keys) {
    return [=](const target& at, const std::atomic<bool>& go) {
        std::vector<wire> controls;
        std::vector<unique_fd> data;
        while (go.load()) {
            auto one = wire::open(source, at, keys);
            if (!one || !one->send(core::control_greeting)) {
                std::this_thread::sleep_for(idle_moment);
                continue;
            }
            for (int i = 0; i < 40 && go.load(); ++i) {
                const auto grant = one->open_session(wish(1, 1024, 60s));
                if (!grant) break;
                data.push_back(connect_from(source, at));
                core::data_preamble shown;
                shown.session_id = grant->session_id;
                shown.token = grant->token;
                push(data.back().get(), std::as_bytes(std::span(&shown, 1)));
            }
            controls.push_back(std::move(*one));
        }
    };
}

}  // namespace accel::hostile
