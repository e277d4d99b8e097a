// SPDX-License-Identifier: Apache-2.0
#include "core/control/client_connection.hpp"

#include "core/control/data_preamble.hpp"
#include "core/guarded.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/unix_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr nanoseconds retry_interval = std::chrono::milliseconds{50};
constexpr nanoseconds idle_lifetime = std::chrono::seconds{1};
/// How long one address of several may take to answer.
constexpr nanoseconds address_patience = std::chrono::seconds{1};
/// How long a handshake may take; then another connection is tried.
constexpr nanoseconds handshake_patience = std::chrono::seconds{3};
constexpr nanoseconds answer_grace = std::chrono::milliseconds{250};
/// After so many refusals in a row, half a second of them, nobody waits for a server that starts late. They
/// are counted, so that a machine that stands still does not end the wait.
constexpr int patient_refusals = 10;

bool same(const link_geometry& a, const link_geometry& b) {
    return a.slots == b.slots && a.request_bytes == b.request_bytes && a.response_bytes == b.response_bytes;
}

}  // namespace

std::optional<waiting_call::answer> waiting_call::wait() {
    std::unique_lock lock{mutex_};
    const auto answered = [this] { return answer_.has_value() || left_; };
    if (deadline == never) {
        done_.wait(lock, answered);
    } else {
        const std::chrono::steady_clock::time_point until{deadline + answer_grace};
        done_.wait_until(lock, until, answered);
    }
    abandoned_ = !answer_;
    return std::exchange(answer_, std::nullopt);
}

client_connection::client_connection(server_address address, const listening_clock& listening)
    : address_(std::move(address)),
      listening_(listening),
      boot_(read_boot_identity()),
      keys_(address_.security),
      idle_since_(now()) {}

void client_connection::ask(std::shared_ptr<waiting_call> call) {
    const std::uint64_t request = ++last_request_;
    const waiting_call& question = *call;
    calls_.emplace(request, std::move(call));
    finished_ = false;
    try {
        if (state_ == state::ready) send_question(request, question);
        if (state_ == state::disconnected && now() >= connect_at_) connect();
    } catch (const std::bad_alloc&) {
        calls_.erase(request);  // it is asked again
        throw;
    }
}

void client_connection::use(std::vector<socket_address> found) {
    if (state_ == state::disconnected) address_.addresses = std::move(found);
}

bool client_connection::close_session(std::uint64_t session_id, const session_watch* watch) {
    const auto found = sessions_.find(session_id);
    if (found == sessions_.end() || found->second.watch.get() != watch) return false;
    send({0, goodbye{session_id, status::closed}});
    sessions_.erase(found);
    if (sessions_.empty()) idle_since_ = now();
    return true;
}

/// Where memory is short, the server learns of it by the end of the connection.
void client_connection::end() noexcept {
    error why{status::closed, 0, "context closed"};
    try {
        why.message = "the context was closed while a channel connected";
        send({0, goodbye{0, status::closed}});
        if (state_ == state::ready) stream_.finish();
    } catch (const std::bad_alloc&) {
    }
    for (auto& [id, session] : sessions_) session.watch->end(status::closed);
    sessions_.clear();
    fail_calls(why);
    disconnect();
}

void client_connection::connect() {
    next_address_ = 0;
    refused_ = hopeful_ = false;
    connect_next(0);
}

/// Skips addresses that refuse. When none is left, tries all of them again a little later, until the
/// questions expire or have been refused often enough.
void client_connection::connect_next(int last_failure) {
    disconnect();
    note_failure(last_failure);
    while (next_address_ < address_.addresses.size()) {
        unique_fd socket;
        const socket_address& tried = address_.addresses[next_address_++];
        last_failure = start_connecting(tried, socket);
        note_failure(last_failure);
        if (last_failure != 0) continue;
        reached_ = numeric_host(tried);
        tune_control_socket(socket.get());
        stream_ = control_stream(std::move(socket));
        state_ = state::connecting;
        const bool last = next_address_ == address_.addresses.size();
        connect_by_ = last ? never : now() + address_patience;
        return;
    }
    connect_at_ = now() + retry_interval;
    if (last_failure != 0 && !hopeful_) return fail_calls(cannot_connect(name(), last_failure));
    count_refusal();
}

void client_connection::note_failure(int failure) {
    refused_ = refused_ || failure == ECONNREFUSED;
    hopeful_ = hopeful_ || (failure != 0 && !is_shortage(failure) && !is_forbidden(failure));
}

/// An address that neither answers nor refuses makes each round take longer, up to the deadline.
void client_connection::count_refusal() {
    const auto given_up = [this](const auto& each) {
        int& refusals = each.second->refusals;
        refusals = refused_ ? refusals + 1 : 0;
        if (refusals < patient_refusals) return false;
        each.second->complete(
            error{status::peer_lost, ECONNREFUSED,
                  fmt::format("nothing listens at {}: start the server, or correct the URI", name())});
        return true;
    };
    if (std::erase_if(calls_, given_up) > 0) idle_since_ = now();
}

pollfd client_connection::poll_item() const noexcept {
    const bool waits_for_room = state_ == state::connecting || wants_write_ || stream_.wants_to_write();
    const auto events = static_cast<short>(waits_for_room ? POLLIN | POLLOUT : POLLIN);
    return {state_ == state::disconnected ? -1 : stream_.fd(), events, 0};
}

void client_connection::progress(short events) {
    if (events == 0 && !more_) return;
    more_ = false;
    if (state_ == state::connecting || state_ == state::shaking) return go_on_connecting();
    if (state_ != state::ready) return;
    if ((events & POLLOUT) != 0 && stream_.flush() == tls_outcome::failed) return on_broken();
    receive();
}

/// Where memory runs out, it connects again and asks anew.
void client_connection::go_on_connecting() {
    try {
        if (state_ == state::connecting) return on_connected();
        shake_hands();
    } catch (const std::bad_alloc&) {
        lose(status::peer_lost);
        throw;
    }
}

void client_connection::on_connected() {
    if (const int failure = connect_outcome(stream_.fd()); failure != 0) return connect_next(failure);
    if (!is_own_user(stream_.fd())) return refuse(another_users_process(address_.host));
    key_generation_ = keys_.generation();
    if (address_.security->insecure()) return greet();
    auto tls = tls_stream::connect(keys_.current()->keys, stream_.fd(), address_.security->name_of(address_.host),
                                   control_protocol);
    if (!tls) return refuse(tls.error());
    stream_.encrypt(std::move(*tls));
    state_ = state::shaking;
    connect_by_ = now() + handshake_patience;
    shake_hands();
}

void client_connection::shake_hands() {
    const tls_outcome outcome = stream_.tls()->handshake();
    wants_write_ = outcome == tls_outcome::wants_write;
    if (outcome == tls_outcome::done) return greet();
    if (outcome == tls_outcome::closed || outcome == tls_outcome::failed) on_broken();
}

/// The server's first answer tells whether it lets this client in.
void client_connection::greet() {
    state_ = state::ready;
    connect_by_ = never;
    heard_ = listening_.listened();
    if (stream_.tls() != nullptr) trusted_until_ = stream_.tls()->valid_until();
    if (!stream_.send_raw(std::as_bytes(std::span(control_greeting)))) return on_broken();
    std::vector<std::uint64_t> asked;
    for (const auto& [request, call] : calls_) asked.push_back(request);
    for (const std::uint64_t request : asked) {
        const auto found = calls_.find(request);
        if (state_ == state::ready && found != calls_.end()) send_question(request, *found->second);
    }
}

void client_connection::disconnect() {
    stream_ = control_stream(unique_fd{});
    state_ = state::disconnected;
    more_ = wants_write_ = false;
    connect_by_ = never;
    trusted_until_ = wall_time::max();
    server_timeout_ = {};
    next_beat_ = never;
    echo_ = {};
    clock_ = {};
}

void client_connection::lose(status why) {
    disconnect();
    for (auto& [id, session] : sessions_) session.watch->end(why);
    sessions_.clear();
    idle_since_ = now();
    connect_at_ = now() + retry_interval;
}

void client_connection::refuse(const error& why) {
    lose(status::peer_lost);
    fail_calls(why);
}

/// TLS gives the reason if keys were refused. Any other end is tried again: the server may be restarting, or
/// have too many connections.
void client_connection::on_broken() {
    const tls_stream* tls = stream_.tls();
    const bool keys = tls != nullptr && tls->refused();
    if (keys)
        return refuse(
            {status::unauthorized, 0,
             fmt::format("the server at {} and this client do not accept each other: {}", name(), tls->failure())});
    closed_unheard_ = closed_unheard_ || server_timeout_ == nanoseconds{0};
    lose(status::peer_lost);
}

void client_connection::receive() {
    const auto read = stream_.fill();
    while (const auto bytes = stream_.next_message()) {
        heard_ = listening_.listened();
        closed_unheard_ = false;
        auto message = guarded([&] { return decode_control(*bytes); });
        if (message.code() == status::out_of_memory) {
            stream_.put_back(*bytes);
            more_ = true;
            throw std::bad_alloc();
        }
        if (message)
            on_message(*message);
        else
            on_malformed(*bytes, message.error());
        if (state_ != state::ready) return;
    }
    if (stream_.violated())
        return refuse({status::protocol_error, 0,
                       fmt::format("the process that listens at {} does not speak this protocol", name())});
    if (read == tls_outcome::closed || read == tls_outcome::failed) return on_broken();
    more_ = read == tls_outcome::done && stream_.holds_input();
}

/// Fails the question that this message answers, if there is one: its session could not be used.
void client_connection::on_malformed(std::span<const std::byte> bytes, const error& why) {
    limited_log(address_.host).warn("dropped a control message from {}: {}", name(), why.message);
    const auto call = take_call(answer_of_malformed(bytes));
    if (call != nullptr)
        call->complete(
            error{status::protocol_error, 0,
                  fmt::format("the server at {} answered with a malformed message: {}", name(), why.message)});
}

void client_connection::send(const control_message& message) {
    if (state_ == state::ready && !stream_.send(message)) more_ = true;  // `receive` hears why
}

void client_connection::send_question(std::uint64_t request, const waiting_call& call) {
    if (call.session)
        send({request, hello{*call.session, now()}});
    else
        std::visit([&](const auto& asked) { send({request, asked}); }, call.asked);
}

void client_connection::send_heartbeat() {
    send({0, heartbeat{{echo_, echo_received_, now()}}});
}

/// Calls that wait here are sent together later.
void client_connection::send_cancels(nanoseconds at) {
    for (auto& [id, session] : sessions_) {
        while (session.watch->cancels.pending() && cancel_messages_.take(at)) {
            cancel_outbox& cancels = session.watch->cancels;
            const control_message message{0, cancel_calls{id, cancels.take(max_cancels)}};
            const std::vector<call_id>& calls = std::get<cancel_calls>(message.body).calls;
            if (calls.empty()) continue;
            try {
                send(message);
            } catch (const std::bad_alloc&) {
                cancels.put_back(calls);
                throw;
            }
        }
    }
}

bool client_connection::cancels_wait() const noexcept {
    return std::ranges::any_of(sessions_, [](const auto& each) { return each.second.watch->cancels.pending(); });
}

std::shared_ptr<waiting_call> client_connection::take_call(std::uint64_t request) {
    auto node = calls_.extract(request);
    return node ? std::move(node.mapped()) : nullptr;
}

void client_connection::on_message(const control_message& message) {
    if (const auto* opened = std::get_if<welcome>(&message.body)) return on_welcome(message, *opened);
    if (const auto* no = std::get_if<refused>(&message.body)) return on_refused(message, *no);
    if (const auto* list = std::get_if<offers>(&message.body)) return on_offers(message, *list);
    if (const auto* found = std::get_if<target_found>(&message.body)) return on_target_found(message, *found);
    if (const auto* list = std::get_if<targets_listed>(&message.body)) return on_targets_listed(message, *list);
    if (const auto* told = std::get_if<health_checked>(&message.body)) return on_health_checked(message, *told);
    if (const auto* beat = std::get_if<heartbeat>(&message.body)) {
        echo_ = beat->clocks.sent;
        echo_received_ = now();
        return update_clock(beat->clocks, echo_received_);
    }
    if (const auto* over = std::get_if<goodbye>(&message.body)) return on_goodbye(*over);
    if (std::holds_alternative<going_away>(message.body)) return on_going_away();
    limited_log(address_.host).warn("dropped a control message from {} that only clients send", name());
}

void client_connection::on_offers(const control_message& message, const offers& body) {
    const auto call = take_call(message.request);
    if (call && call->asks<query>() != nullptr)
        call->complete(body.schemes);
    else if (call)
        call->complete(wrong_answer());
}

/// Numbers are made from names, so that they hold for a server that is started again.
void client_connection::on_target_found(const control_message& message, const target_found& body) {
    const auto call = take_call(message.request);
    const find_target* const asked = call ? call->asks<find_target>() : nullptr;
    if (asked != nullptr && body.number == target_of(asked->name).number)
        call->complete(body.number);
    else if (call)
        call->complete(wrong_answer());
}

/// Only names after the one in the question, so that a client that asks for the rest comes to an end.
void client_connection::on_targets_listed(const control_message& message, const targets_listed& body) {
    const auto call = take_call(message.request);
    const list_targets* const asked = call ? call->asks<list_targets>() : nullptr;
    if (asked != nullptr && (body.page.names.empty() || body.page.names.front() > asked->after))
        call->complete(body.page);
    else if (call)
        call->complete(wrong_answer());
}

void client_connection::on_health_checked(const control_message& message, const health_checked& body) {
    const auto call = take_call(message.request);
    if (call && call->asks<check_health>() != nullptr)
        call->complete(body.state);
    else if (call)
        call->complete(wrong_answer());
}

void client_connection::on_refused(const control_message& message, const refused& body) {
    error why{body.code, 0, body.why};
    if (why.code == status::ok) why.code = status::protocol_error;
    if (message.request == 0) return refuse(why);  // the whole connection
    if (const auto call = take_call(message.request)) call->complete(std::move(why));
}

/// The fault of a grant; empty if it fits the request.
std::string client_connection::unsound(const session_request& asked, const session_grant& grant) const {
    if (!same(grant.granted, asked.wanted)) return "slots or sizes that were not requested";
    return sessions_.contains(grant.session_id) ? "a session number that is already in use" : "";
}

void client_connection::on_welcome(const control_message& message, const welcome& body) {
    const nanoseconds received = now();
    const session_grant& grant = body.grant;
    const auto call = take_call(message.request);
    if (call == nullptr || !call->session) {
        if (call != nullptr) call->complete(wrong_answer());
        if (!sessions_.contains(grant.session_id)) send({0, goodbye{grant.session_id, status::closed}});
        return;
    }
    const session_request& asked = *call->session;
    if (const std::string wrong = unsound(asked, grant); !wrong.empty()) {
        send({0, goodbye{grant.session_id, status::protocol_error}});
        call->complete(error{status::protocol_error, 0, fmt::format("the server at {} granted {}", name(), wrong)});
        return;
    }
    const boot_identity unknown{};
    if (body.boot == boot_ && body.boot != unknown) clock_.set_same_kernel();
    server_timeout_ = grant.peer_timeout;
    next_beat_ = std::min(next_beat_, received + beat_interval(server_timeout_));
    try {
        sessions_.emplace(grant.session_id, live_session{call->watch, asked.peer_timeout});
        update_clock(body.clocks, received);
        session_grant reached = grant;
        reached.address = reached_;
        if (call->complete(std::move(reached))) return;
    } catch (const std::bad_alloc&) {
        call->complete(error{status::out_of_memory, ENOMEM, "out of memory"});
    }
    if (!close_session(grant.session_id, call->watch.get())) send({0, goodbye{grant.session_id, status::closed}});
}

void client_connection::on_goodbye(const goodbye& body) {
    if (body.session_id == 0) return lose(body.why);
    const auto found = sessions_.find(body.session_id);
    if (found == sessions_.end()) return;
    found->second.watch->end(body.why);
    sessions_.erase(found);
    if (sessions_.empty()) idle_since_ = now();
}

void client_connection::on_going_away() noexcept {
    for (auto& [id, session] : sessions_) session.watch->drain();
}

void client_connection::update_clock(const clock_stamps& stamps, nanoseconds received) {
    clock_.add(stamps, received);
    const auto offset = clock_.offset().count();
    for (auto& [id, session] : sessions_) session.watch->clock_offset_ns.store(offset, std::memory_order_relaxed);
}

void client_connection::fail_calls(const error& why) noexcept {
    const auto failed = std::exchange(calls_, {});
    for (const auto& [request, call] : failed) call->fail(why);
    idle_since_ = now();
}

error client_connection::wrong_answer() const {
    return {status::protocol_error, 0, fmt::format("the server at {} answered a different question", name())};
}

error client_connection::no_answer() const {
    if (closed_unheard_)
        return {status::overloaded, 0,
                fmt::format("the server at {} closes each connection before it answers: it may have too many "
                            "connections, or no file descriptors left; its log says why",
                            name())};
    const char* advice = state_ == state::ready ? "it accepted the connection but did not answer in time; is it "
                                                  "overloaded?"
                                                : "start it, or check host, port and firewall";
    return {status::timed_out, 0, fmt::format("no server answered at {}: {}", name(), advice)};
}

void client_connection::expire_calls(nanoseconds at) {
    const auto expired = [&](const auto& each) {
        if (each.second->deadline > at) return false;
        each.second->complete(no_answer());
        return true;
    };
    if (std::erase_if(calls_, expired) > 0) idle_since_ = at;
}

void client_connection::judge_silence() {
    const nanoseconds silence = listening_.listened() - heard_;
    for (auto each = sessions_.begin(); each != sessions_.end();) {
        if (silence <= each->second.peer_timeout) {
            ++each;
            continue;
        }
        each->second.watch->end(status::peer_lost);
        send({0, goodbye{each->first, status::peer_lost}});
        each = sessions_.erase(each);
        // A silent server is not asked again on the same connection.
        if (sessions_.empty()) return lose(status::peer_lost);
    }
}

/// Trust in a server ends when a certificate expires, or when keys have changed and it is not among them.
void client_connection::judge_server() {
    keys_.look_at_files();
    if (wall_now() < trusted_until_ && key_generation_ == keys_.generation()) return;
    const std::uint64_t generation = keys_.generation();
    auto until = stream_.tls()->admitted_by(*keys_.current()->keys);
    if (until) {
        key_generation_ = generation;
        trusted_until_ = *until;
        return;
    }
    if (!sessions_.empty())
        log().warn("the server at {} is no longer trusted ({}); closing {} sessions", name(), until.error().message,
                   sessions_.size());
    send({0, goodbye{0, status::unauthorized}});
    lose(status::unauthorized);
}

nanoseconds client_connection::run_timers() {
    const nanoseconds at = now();
    expire_calls(at);
    if (state_ == state::ready && !sessions_.empty()) judge_silence();
    if (state_ == state::ready) judge_server();
    if (state_ == state::connecting && at >= connect_by_) connect_next(ETIMEDOUT);
    if (state_ == state::shaking && at >= connect_by_) lose(status::peer_lost);
    if (state_ == state::disconnected && !calls_.empty() && at >= connect_at_) connect();
    if (state_ == state::ready) send_cancels(at);
    if (state_ == state::ready && at >= next_beat_) {
        send_heartbeat();
        next_beat_ = at + beat_interval(server_timeout_);
    }
    const bool idle = calls_.empty() && sessions_.empty();
    if (idle && at - idle_since_ >= idle_lifetime) {
        end();
        finished_ = true;
        return never;
    }
    return next_look(at);
}

nanoseconds client_connection::next_look(nanoseconds at) const {
    const bool idle = calls_.empty() && sessions_.empty();
    nanoseconds next = idle ? idle_since_ + idle_lifetime : never;
    if (state_ == state::ready) next = std::min({next, next_beat_, time_to_look(trusted_until_, at)});
    if (state_ == state::ready && keys_.has_files()) next = std::min(next, at + key_look_interval);
    if (cancels_wait()) next = std::min(next, at + cancel_messages_.time_until(1));
    next = std::min(next, connect_by_);
    if (state_ == state::disconnected && !calls_.empty()) next = std::min(next, std::max(connect_at_, at));
    for (const auto& [request, call] : calls_) next = std::min(next, call->deadline);
    nanoseconds shortest = never;
    for (const auto& [id, session] : sessions_) shortest = std::min(shortest, session.peer_timeout);
    if (shortest == never || state_ != state::ready) return next;
    const nanoseconds left = shortest - (listening_.listened() - heard_) + std::chrono::milliseconds{1};
    return std::min(next, at + std::min(left, beat_interval(shortest)));
}

}  // namespace accel::core
