// SPDX-License-Identifier: Apache-2.0
#include "hostile/attacks.hpp"

#include "core/net/socket.hpp"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>

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

}  // namespace

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

}  // namespace accel::hostile
