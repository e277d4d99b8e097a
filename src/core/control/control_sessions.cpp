// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_server_core.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sys/epoll.h>

/// Messages between a control server and its clients.
namespace accel::core {
namespace {

/// Sessions of one connection, and of all connections of one client, that are opened at once; beyond them the client is
/// not read until some are open.
constexpr std::uint32_t max_openings = 64;
constexpr std::uint32_t max_client_openings = 256;
/// What all connections of a client may leave unread.
constexpr std::size_t max_client_unsent = 4 << 20;
constexpr std::size_t max_welcomes_per_round = 32;
/// A slowed client is read again when it may send this many messages.
constexpr std::uint32_t messages_after_pause = 64;
constexpr nanoseconds pause_for_openings = std::chrono::milliseconds{1};
/// Where it has many connections, longer.
constexpr nanoseconds pause_for_client_openings = std::chrono::milliseconds{20};
/// Messages of one connection in a turn, so that others are served.
constexpr int max_messages_per_round = 16;

}  // namespace

void control_server::impl::read_messages(server_connection& which) {
    const std::uint64_t id = which.id;
    const nanoseconds at = now();
    const auto read = which.stream.fill();
    int taken = 0;
    for (;;) {
        if (opens_too_many(which)) return pause(which, at);
        const auto message = which.stream.next_message();
        if (!message) break;
        on_message(which, *message);
        if (find(id) == nullptr || which.stage != connection_stage::serving) return;
        if (!which.messages.take(at)) return pause(which, at);
        if (++taken == max_messages_per_round) return await_turn(which, EPOLLIN);
    }
    if (which.stream.violated()) {
        limited_log(which.client.account())
            .warn("{} sent a frame that is longer than any message", which.client.text());
        return lose(which, status::protocol_error);
    }
    if (read == tls_outcome::closed || read == tls_outcome::failed) {
        log_refusal(which);
        return lose(which, status::peer_lost);
    }
    read_later(which, read);
}

/// The connection has ended, perhaps because its client does not trust this server.
void control_server::impl::log_refusal(const server_connection& which) {
    const tls_stream* tls = which.stream.tls();
    if (tls == nullptr || !tls->refused()) return;
    limited_log(which.client.account()).warn("{} does not accept this server: {}", which.client.text(), tls->failure());
}

/// The socket does not tell of bytes that TLS has taken from it. After `wants_read` they are part of a record whose
/// rest the socket will tell of.
void control_server::impl::read_later(server_connection& which, tls_outcome last_read) {
    const bool more = last_read == tls_outcome::done && which.stream.holds_input();
    if (more) await_turn(which, EPOLLIN);
}

bool control_server::impl::opens_too_many(const server_connection& which) const {
    if (which.opening >= max_openings) return true;
    const auto share = clients_.find(which.client.account());
    return share != clients_.end() && share->second.opening >= max_client_openings;
}

/// A client that sends more than its share, or opens more sessions, is not read for a while. A correct client
/// can do that too, so it is only slowed. Its bytes wait in its own buffers meanwhile.
void control_server::impl::pause(server_connection& which, nanoseconds at) {
    const nanoseconds wait = which.opening >= max_openings ? pause_for_openings
                             : opens_too_many(which)       ? pause_for_client_openings
                                                           : which.messages.time_until(messages_after_pause);
    which.paused_until = at + std::max<nanoseconds>(wait, pause_for_openings);
    next_timer_ = std::min(next_timer_, which.paused_until);
    watch(which, events_of(which));
}

/// A slowed client is not read for a while, but its leaving counts at once.
std::uint32_t control_server::impl::events_of(const server_connection& which) noexcept {
    const std::uint32_t output = which.stream.wants_to_write() ? std::uint32_t{EPOLLOUT} : 0U;
    if (which.paused_until == nanoseconds{0}) return output | EPOLLIN;
    return output | (which.opening < max_openings ? std::uint32_t{EPOLLRDHUP} : 0U);
}

/// False: its client leaves too much unread.
bool control_server::impl::count_unsent(server_connection& which) {
    if (which.half_open()) return true;
    std::size_t& all = clients_.find(which.client.account())->second.unsent;
    all += which.stream.unsent() - std::exchange(which.unsent, which.stream.unsent());
    return all <= max_client_unsent;
}

void control_server::impl::on_message(server_connection& from, std::span<const std::byte> bytes) {
    auto message = decode_control(bytes);
    if (!message) return on_malformed(from, bytes, message.error());
    from.heard = listening_.listened();
    if (auto* wish = std::get_if<hello>(&message->body)) return on_hello(from, message->request, *wish);
    if (std::holds_alternative<query>(message->body)) return send(from, {message->request, offers{host_.offers()}});
    if (const auto* beat = std::get_if<heartbeat>(&message->body)) return on_heartbeat(from, *beat);
    if (const auto* asked = std::get_if<find_target>(&message->body))
        return on_find_target(from, message->request, *asked);
    if (const auto* asked = std::get_if<list_targets>(&message->body))
        return send(from, {message->request, targets_listed{host_.list_targets(asked->after)}});
    if (const auto* asked = std::get_if<check_health>(&message->body))
        return send(from, {message->request, health_checked{host_.check_health(asked->name)}});
    if (const auto* over = std::get_if<goodbye>(&message->body)) return on_goodbye(from, *over);
    if (const auto* over = std::get_if<cancel_calls>(&message->body)) return on_cancel(from, *over);
    on_malformed(from, bytes, {status::protocol_error, 0, "only servers send such messages"});
}

void control_server::impl::on_malformed(server_connection& from, std::span<const std::byte> bytes, const error& why) {
    limited_log(from.client.account()).warn("dropped a control message from {}: {}", from.client.text(), why.message);
    const std::uint64_t request = question_of_malformed(bytes);
    if (request != 0) send(from, {request, refused{why.code, fmt::format("the server refused: {}", why.message)}});
}

void control_server::impl::on_hello(server_connection& from, std::uint64_t request, hello& body) {
    const nanoseconds received = now();
    from.peer_timeout = std::min(from.peer_timeout, body.request.peer_timeout);
    from.next_beat = std::min(from.next_beat, received + beat_interval(from.peer_timeout));
    next_timer_ = std::min(next_timer_, from.next_beat);
    open_job job{from.id, from.client, request, std::move(body.request), body.sent, received};
    if (opener_.submit(std::move(job))) {
        ++from.opening;
        ++clients_.find(from.client.account())->second.opening;
        return;
    }
    send(from, {request, refused{status::overloaded, "too many sessions are being opened at once; try again later"}});
}

void control_server::impl::on_find_target(server_connection& from, std::uint64_t request, const find_target& body) {
    auto found = host_.find_target(body.name);
    if (found)
        send(from, {request, target_found{*found}});
    else
        send(from, {request, refused{found.error().code, found.error().message}});
}

void control_server::impl::on_heartbeat(server_connection& from, const heartbeat& body) noexcept {
    from.echo = body.clocks.sent;
    from.echo_received = now();
}

void control_server::impl::on_goodbye(server_connection& from, const goodbye& body) {
    const status why = body.why == status::closed ? status::closed : status::peer_lost;
    if (body.session_id == 0) return lose(from, why);
    if (from.sessions.erase(body.session_id) == 0) {
        // Both ends may end a session at the same time. Any other session is another client's.
        if (sessions_.contains(body.session_id))
            limited_log(from.client.account())
                .warn("{} tried to close session {}, which belongs to another client; ignored", from.client.text(),
                      body.session_id);
        return;
    }
    sessions_.erase(body.session_id);
    host_.close_session(body.session_id, why);
    from.idle_since = now();
}

/// A session that is not this client's may be one that the server has just ended.
void control_server::impl::on_cancel(const server_connection& from, const cancel_calls& body) noexcept {
    if (from.sessions.contains(body.session_id)) host_.cancel(body.session_id, body.calls);
}

void control_server::impl::take_opened() {
    for (opened_session& each : opener_.take(max_welcomes_per_round)) {
        server_connection* to = find(each.job.connection);
        if (to == nullptr || to->stage != connection_stage::serving) {
            if (each.outcome) host_.close_session(each.outcome->session_id, status::peer_lost);
            continue;
        }
        --to->opening;
        --clients_.find(to->client.account())->second.opening;
        to->idle_since = now();
        try {
            if (!each.outcome)
                refuse_opened(*to, each, each.outcome.error());
            else
                welcome_client(*to, each);
        } catch (const std::bad_alloc&) {
            if (each.outcome) host_.close_session(each.outcome->session_id, status::out_of_memory);
            lose(*to, status::out_of_memory);
        }
    }
}

void control_server::impl::refuse_opened(server_connection& to, const opened_session& opened, const error& why) {
    send(to, {opened.job.request, refused{why.code, why.message}});
}

void control_server::impl::welcome_client(server_connection& to, opened_session& opened) {
    const open_job& job = opened.job;
    session_grant& grant = *opened.outcome;
    const std::uint64_t session_id = grant.session_id;
    if (const auto early = ended_early_.find(session_id); early != ended_early_.end()) {
        refuse_opened(to, opened, {early->second, 0, "the server closed the session at once"});
        ended_early_.erase(early);
        return;
    }
    to.sessions.insert(session_id);
    sessions_[session_id] = to.id;
    to.heard = listening_.listened();  // the time of the opening does not count as silence
    next_timer_ = std::min(next_timer_, deadline_after(silence_left(to)));
    grant.peer_timeout = peer_timeout_;
    send(to, {job.request, welcome{std::move(grant), boot_, {job.sent, job.received, now()}}});
    if (goes_away_ && find(job.connection) != nullptr) send(to, {0, going_away{}});
}

/// Those that memory has run out for are told later.
void control_server::impl::take_ended() {
    ended_sessions taken;
    {
        const std::lock_guard lock{mutex_};
        taken.swap(ended_);
    }
    const bool all_welcomed = opener_.idle();
    if (all_welcomed) ended_early_.clear();
    try {
        for (; !taken.empty(); taken.pop_front()) tell_ended(taken.front(), all_welcomed);
    } catch (const std::bad_alloc&) {
        const std::lock_guard lock{mutex_};
        ended_.splice(ended_.begin(), taken);
        wake_.set();
        throw;
    }
}

void control_server::impl::tell_ended(const ended_session& each, bool all_welcomed) {
    const auto found = sessions_.find(each.id);
    if (found == sessions_.end()) {
        if (!all_welcomed) ended_early_.emplace(each.id, each.why);
        return;
    }
    if (server_connection* owner = find(found->second)) {
        owner->sessions.erase(each.id);
        owner->idle_since = now();
        send(*owner, {0, goodbye{each.id, each.why}});
    }
    sessions_.erase(each.id);
}

/// Time until the client's silence means that it is dead; `never` while it may be silent.
nanoseconds control_server::impl::silence_left(const server_connection& each) const noexcept {
    const bool waits_for_us = each.opening > 0 && each.sessions.empty();
    // While this server does not read, the client cannot be called silent.
    const bool unheard = each.paused_until != nanoseconds{0};
    if (waits_for_us || unheard || each.peer_timeout == never) return never;
    return peer_timeout_ - (listening_.listened() - each.heard);
}

/// A client that does not read loses its sessions, before what waits for it takes much memory.
void control_server::impl::send(server_connection& to, const control_message& message) {
    const bool taken = to.stream.send(message);
    if (!count_unsent(to) || !taken) {
        limited_log(to.client.account()).warn("{} does not read its messages, or has disconnected", to.client.text());
        if (to.stage != connection_stage::serving) return;
        return lose(to, status::peer_lost);
    }
    if (to.stream.wants_to_write()) sync_output(to);
}

void control_server::impl::end_sessions(server_connection& which, status why) {
    for (const std::uint64_t session : std::exchange(which.sessions, {})) {
        sessions_.erase(session);
        host_.close_session(session, why);
    }
}

void control_server::impl::lose(server_connection& which, status why) {
    end_sessions(which, why);
    drop(which);
}

/// Once; it follows each later welcome.
void control_server::impl::say_going_away() {
    if (goes_away_ || !draining_.load()) return;
    say_to_all({0, going_away{}}, false);
    goes_away_ = true;
}

void control_server::impl::say_goodbye() {
    say_to_all({0, goodbye{0, status::closed}}, true);
}

void control_server::impl::say_to_all(const control_message& message, bool last) {
    std::vector<server_connection*> all;
    for (const auto& [id, each] : connections_)
        if (each->stage == connection_stage::serving) all.push_back(each.get());
    for (server_connection* each : all) {
        const std::uint64_t id = each->id;
        send(*each, message);
        if (last && find(id) != nullptr) each->stream.finish();
    }
}

}  // namespace accel::core
