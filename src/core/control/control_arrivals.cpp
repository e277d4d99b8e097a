// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_server_core.hpp"
#include "core/control/data_preamble.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/// A control server's connections until their peer and purpose are known. They are few, each has a deadline,
/// and their handshakes are queued.
namespace accel::core {
namespace {

constexpr int max_accepts_per_round = 32;
/// Each takes about a third of a millisecond.
constexpr int max_handshakes_per_round = 4;
constexpr nanoseconds pause_without_descriptors = std::chrono::milliseconds{50};

/// An alert as TLS has them (RFC 8446, section 6), in a record of its own: fatal, access_denied.
constexpr std::array tls_alert_access_denied{std::byte{21}, std::byte{3}, std::byte{3}, std::byte{0},
                                             std::byte{2},  std::byte{2}, std::byte{49}};

bool begins_with(std::span<const std::byte> bytes, std::string_view greeting) noexcept {
    const std::size_t common = std::min(bytes.size(), greeting.size());
    return std::memcmp(bytes.data(), greeting.data(), common) == 0;
}

}  // namespace

void control_server::impl::accept_some() {
    for (int i = 0; i < max_accepts_per_round; ++i) {
        unique_fd socket;
        const listener::outcome outcome = door_.accept(socket);
        if (outcome == listener::outcome::none) return;
        if (outcome == listener::outcome::shed) return shed();
        if (!is_own_user(socket.get())) {
            limited_log().warn("refused a process of another user: shm:// only connects processes of one user");
            continue;
        }
        tune_control_socket(socket.get());
        std::string address = peer_address(socket.get());
        adopt(std::move(socket), std::move(address));
    }
}

/// Stops accepting for a moment, else this thread would do nothing but refuse connections.
void control_server::impl::shed() {
    limited_log().error("{}, or lower max_connections and max_sessions",
                        no_descriptor("for a new connection, which was closed", door_.shortage()).message);
    make_room();
    door_closed_until_ = now() + pause_without_descriptors;
    next_timer_ = std::min(next_timer_, door_closed_until_);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, door_.fd(), nullptr);
}

void control_server::impl::adopt(unique_fd socket, std::string address) {
    if (half_open_.size() >= limits_.max_half_open) make_room();
    const std::uint64_t id = next_id_++;
    auto made = std::make_unique<server_connection>(id, std::move(socket), std::move(address), now());
    server_connection& which = *made;
    timed_.reserve(connections_.size() + 1);
    half_open_.add(which.client.place(), id);
    try {
        connections_.emplace(id, std::move(made));
    } catch (const std::bad_alloc&) {
        half_open_.remove(which.client.place(), id);
        throw;
    }
    next_timer_ = std::min(next_timer_, which.since + limits_.half_open_timeout);
    watch(which, EPOLLIN);
    await_turn(which, EPOLLIN);
}

void control_server::impl::count_client(const server_connection& which) {
    client_share& share = clients_[which.client.account()];
    half_open_.let_in(which.client.place());
    ++share.connections;
}

void control_server::impl::forget_client(const server_connection& which) {
    half_open_.left(which.client.place());
    const auto found = clients_.find(which.client.account());
    client_share& share = found->second;
    share.opening -= which.opening;
    share.unsent -= which.unsent;
    if (--share.connections == 0) clients_.erase(found);
}

void control_server::impl::make_room() {
    const auto first = half_open_.first_to_go();
    server_connection* oldest = first ? find(*first) : nullptr;
    if (oldest == nullptr) return;
    limited_log(oldest->client.place())
        .warn("too many connections have sent no greeting; closed the oldest one, from {}", oldest->client.text());
    drop(*oldest);
}

void control_server::impl::on_readable(server_connection& which) {
    switch (which.stage) {
        case connection_stage::opening:
            return on_first_byte(which);
        case connection_stage::queued:
            return;
        case connection_stage::shaking:
            return shake_hands(which);
        case connection_stage::greeting:
        case connection_stage::attaching:
            return read_greeting(which);
        case connection_stage::serving:
            return read_messages(which);
        case connection_stage::leaving:
            return read_off(which);
    }
}

void control_server::impl::on_first_byte(server_connection& which) {
    std::byte first{};
    const ssize_t got = ::recv(which.stream.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return drop(which);
    if (first != tls_first_byte) {
        which.stage = connection_stage::greeting;
        return read_greeting(which);
    }
    if (identity_->insecure()) {
        static_cast<void>(which.stream.send_raw(tls_alert_access_denied));
        return refuse(which, "it uses keys, and this server is insecure");
    }
    which.stage = connection_stage::queued;
    watch(which, 0);
    queued_.add(which.client.place(), which.id);
    queue_waits_ = false;
}

void control_server::impl::start_handshakes() {
    int left = max_handshakes_per_round;
    const auto has_share = [this](const std::string& address) { return handshakes_.take(address, now()); };
    const auto is_known = [&](const std::string& address) { return half_open_.knows(address) && has_share(address); };
    for (; left > 0; --left) {
        // Addresses of clients come first, but for one.
        std::optional<std::uint64_t> id;
        if (left > 1) id = queued_.next(is_known);
        if (!id) id = queued_.next(has_share);
        if (!id) break;
        if (server_connection* which = find(*id)) start_handshake(*which);
    }
    queue_waits_ = !queued_.empty() && left == max_handshakes_per_round;
}

void control_server::impl::start_handshake(server_connection& which) {
    auto tls = tls_stream::accept(identity_->keys, which.stream.fd(),
                                  [this](std::uint64_t session) { return host_.token_of(session); });
    if (!tls) {
        limited_log(which.client.account())
            .error("cannot speak TLS with {}: {}", which.client.text(), tls.error().message);
        return drop(which);
    }
    which.stream.encrypt(std::move(*tls));
    which.key_generation = key_generation_;
    which.stage = connection_stage::shaking;
    which.since = now();
    next_timer_ = std::min(next_timer_, which.since + limits_.half_open_timeout);
    watch(which, EPOLLIN);
    shake_hands(which);
}

void control_server::impl::shake_hands(server_connection& which) {
    tls_stream& tls = *which.stream.tls();
    switch (tls.handshake()) {
        case tls_outcome::done:
            return on_shaken(which);
        case tls_outcome::wants_read:
            return watch(which, EPOLLIN);
        case tls_outcome::wants_write:
            return watch(which, EPOLLOUT);
        case tls_outcome::closed:
            return drop(which);
        case tls_outcome::failed:
            break;
    }
    limited_log(which.client.place()).warn("refused {}: {}", which.client.text(), tls.failure());
    leave(which);
}

void control_server::impl::on_shaken(server_connection& which) {
    which.client.name = which.stream.tls()->peer_name();
    which.stage = connection_stage::greeting;
    watch(which, EPOLLIN);
    read_greeting(which);
}

/// Keys may have changed since its handshake began.
result<wall_time> control_server::impl::admitted_until(const server_connection& which) const {
    const tls_stream* tls = which.stream.tls();
    if (tls == nullptr) return wall_time::max();
    return which.key_generation == key_generation_ ? tls->valid_until() : tls->admitted_by(*identity_->keys);
}

/// A connection says its purpose first: a control connection in 8 bytes, a data connection in 64.
void control_server::impl::read_greeting(server_connection& which) {
    const auto read = which.stream.fill();
    const auto bytes = which.stream.received();
    if (begins_with(bytes, data_greeting)) {
        which.stage = connection_stage::attaching;
        if (bytes.size() >= sizeof(data_preamble)) return pass_on(which);
    } else if (!begins_with(bytes, control_greeting)) {
        return refuse(which, "it does not speak this protocol");
    } else if (bytes.size() >= greeting_bytes) {
        return on_control_greeting(which);
    }
    const bool ended = read == tls_outcome::closed || read == tls_outcome::failed;
    if (!ended) return read_later(which, read);
    log_refusal(which);
    drop(which);
}

void control_server::impl::on_control_greeting(server_connection& which) {
    which.stream.take(greeting_bytes);
    if (which.stream.tls() == nullptr && !identity_->insecure()) return refuse_plain(which);
    const tls_stream* tls = which.stream.tls();
    if (tls != nullptr && (!tls->carries(control_protocol) || tls->session()))
        return refuse(which, "its greeting does not match its TLS protocol");
    if (tls != nullptr && which.client.name.empty() && !tls->anonymous()) {
        send(which, {0, refused{status::unauthorized,
                                "this client's certificate has no name; give it a DNS name or a "
                                "common name (which does not begin with 'ed25519:')"}});
        return refuse(which, "its certificate has no name");
    }
    auto admitted = admitted_until(which);
    if (!admitted) {
        send(which, {0, refused{status::unauthorized, "this client's key is no longer authorised"}});
        return refuse(which, "its key is no longer authorised");
    }
    if (!find_place(which.client.account())) {
        send(which, {0, refused{status::overloaded, "this server has too many connections; try again later"}});
        return refuse(which, "its own connections, or those of all clients, have reached their limit");
    }
    count_client(which);
    half_open_.remove(which.client.place(), which.id);
    which.stage = connection_stage::serving;
    which.heard = listening_.listened();
    which.idle_since = now();
    which.admitted_until = *admitted;
    next_timer_ = std::min(
        {next_timer_, which.idle_since + limits_.idle_timeout, time_to_look(which.admitted_until, which.idle_since)});
    read_messages(which);
}

/// Makes room for one more control connection of this client. Drops connections without a session, the oldest
/// first: the client's own if it has too many, else any client's.
bool control_server::impl::find_place(const std::string& account) {
    const auto own = clients_.find(account);
    const bool own_full = own != clients_.end() && own->second.connections >= limits_.max_client_connections;
    const bool all_full = connections_.size() - half_open_.size() >= limits_.max_connections;
    if (!own_full && !all_full) return true;
    server_connection* oldest = nullptr;
    for (const auto& [id, each] : connections_) {
        const bool candidate = !each->half_open() && each->unused() && (!own_full || each->client.account() == account);
        if (candidate && (oldest == nullptr || id < oldest->id)) oldest = each.get();
    }
    if (oldest == nullptr) return false;
    limited_log(oldest->client.account())
        .warn("too many control connections; closed the oldest one without a session, from {}", oldest->client.text());
    drop(*oldest);
    return true;
}

/// The client sent plain bytes to a server with keys: tells it why in plain bytes.
void control_server::impl::refuse_plain(server_connection& which) {
    const char* const why = identity_->options.anonymous
                                ? "this server accepts only clients with TLS; set server_key or ca_file"
                                : "this server accepts only clients with keys; set key_file and server_key";
    send(which, {0, refused{status::unauthorized, why}});
    refuse(which, "it has no keys");
}

/// A connection made with a session's key is a data connection, and nothing else.
bool control_server::impl::may_carry(const tls_stream& tls, std::uint64_t session_id) {
    return tls.carries(data_protocol) && tls.session().value_or(session_id) == session_id;
}

/// From here on a data connection belongs to its session's worker.
void control_server::impl::pass_on(server_connection& which) {
    std::string why;
    const auto shown = read_data_preamble(which.stream.received(), why);
    const tls_stream* tls = which.stream.tls();
    if (!shown || (tls != nullptr && !may_carry(*tls, shown->session_id)) ||
        which.stream.received().size() > sizeof(data_preamble))
        return refuse(which, why.empty() ? "its messages are out of order" : why);
    const client_identity client = which.client;
    watch(which, 0);
    auto parts = which.stream.release();
    data_connection made{std::move(parts.socket), nullptr, shown->session_id, shown->token};
    if (parts.tls) made.tls = std::make_shared<tls_stream>(std::move(*parts.tls));
    drop(which);
    const auto taken = host_.take_connection(made, client);
    if (taken) return;
    if (taken.code() != status::peer_lost) (void)answer_data(made, taken.error().code, taken.error().message);
    limited_log(client.account())
        .warn("refused a data connection from {} for session {}: {}", client.text(), shown->session_id,
              taken.error().message);
}

void control_server::impl::refuse(server_connection& which, std::string_view why) {
    limited_log(which.client.account()).warn("refused {}: {}", which.client.text(), why);
    leave(which);
}

/// Sends the last message, then waits for the peer's end: closing at once could discard that message.
void control_server::impl::leave(server_connection& which) {
    if (find(which.id) == nullptr) return;
    if (!which.half_open()) {
        half_open_.add(which.client.place(), which.id);
        forget_client(which);
    }
    which.stage = connection_stage::leaving;
    which.since =
        now() - limits_.half_open_timeout + std::min<nanoseconds>(limits_.half_open_timeout, std::chrono::seconds{1});
    which.paused_until = {};
    next_timer_ = std::min(next_timer_, which.since + limits_.half_open_timeout);
    sync_output(which);
    if (server_connection* still = find(which.id)) read_off(*still);
}

void control_server::impl::read_off(server_connection& which) {
    std::array<std::byte, 4096> ignored;
    const ssize_t got = ::recv(which.stream.fd(), ignored.data(), ignored.size(), MSG_DONTWAIT);
    const bool later = got < 0 && (errno == EAGAIN || errno == EINTR);
    if (got == 0 || (got < 0 && !later)) drop(which);
}

void control_server::impl::drop(server_connection& which) {
    dropped_.reserve(dropped_.size() + 1);
    auto node = connections_.extract(which.id);
    if (!node) return;
    dropped_.push_back(std::move(node.mapped()));
    if (which.stage == connection_stage::queued) queued_.remove(which.client.place(), which.id);
    if (which.opening > 0) opener_.forget(which.client, which.id);
    if (which.half_open())
        half_open_.remove(which.client.place(), which.id);
    else
        forget_client(which);
    end_sessions(which, status::peer_lost);
    watch(which, 0);
}

}  // namespace accel::core
