#include "core/control/client_connection.hpp"

#include "core/log.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr nanoseconds retry_interval = std::chrono::milliseconds{50};
constexpr nanoseconds idle_lifetime = std::chrono::seconds{1};
constexpr nanoseconds answer_grace = std::chrono::milliseconds{250};
constexpr int goodbye_linger_ms = 100;
// A handshake cut off without a reason may be a server that is just restarting; several in a row are not.
constexpr int patience_with_handshakes = 3;

const boot_identity& own_boot() {
    static const boot_identity id = read_boot_identity();
    return id;
}

bool within(const link_geometry& granted, const link_geometry& wanted) {
    return granted.slots <= wanted.slots && granted.request_bytes <= wanted.request_bytes &&
           granted.response_bytes <= wanted.response_bytes;
}

}  // namespace

std::optional<waiting_call::answer> waiting_call::wait() {
    std::unique_lock lock{mutex_};
    const auto answered = [this] { return answer_.has_value(); };
    if (deadline == never) {
        done_.wait(lock, answered);
    } else {
        const std::chrono::steady_clock::time_point until{deadline + answer_grace};
        done_.wait_until(lock, until, answered);
    }
    abandoned_ = !answer_;
    return std::exchange(answer_, std::nullopt);
}

client_connection::client_connection(void* zmq_context, server_address address,
                                     const listening_clock& listening)
    : zmq_(zmq_context), address_(std::move(address)), listening_(listening), idle_since_(now()) {}

void client_connection::ask(std::shared_ptr<waiting_call> call) {
    const std::uint64_t request = ++last_request_;
    const waiting_call& question = *call;
    calls_.emplace(request, std::move(call));
    finished_ = false;
    if (state_ == state::ready) send_question(request, question);
    if (state_ == state::disconnected && now() >= connect_at_) connect();
}

bool client_connection::close_session(std::uint64_t session_id) {
    if (sessions_.erase(session_id) == 0) return false;
    send({0, goodbye{session_id, status::closed}});
    if (sessions_.empty()) idle_since_ = now();
    return true;
}

void client_connection::end() {
    if (state_ == state::ready) {
        send({0, goodbye{0, status::closed}});
        socket_.set(ZMQ_LINGER, goodbye_linger_ms);
    }
    for (auto& [id, session] : sessions_) session.watch->end(status::closed);
    sessions_.clear();
    fail_calls({status::closed, 0, "the context was closed while a channel connected"});
    disconnect();
}

void client_connection::connect() {
    auto opened = zmq_socket::open(zmq_, ZMQ_DEALER);
    if (!opened) return fail_calls(opened.error());
    // Retries a refused connection itself; a broken one is replaced by us.
    opened->set(ZMQ_RECONNECT_IVL, static_cast<int>(retry_interval / std::chrono::milliseconds{1}));
    opened->set(ZMQ_MAXMSGSIZE, std::int64_t{max_control_bytes});
    if (auto secured = secure_socket(opened->get(), *address_.security, false); !secured)
        return fail_calls(secured.error());
    auto watcher = socket_monitor::open(
        zmq_, *opened, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | handshake_failures);
    if (!watcher) return fail_calls(watcher.error());
    if (!opened->connect(address_.endpoint)) {
        const int native = zmq_errno();
        return fail_calls({status::system_error, native,
                           fmt::format("cannot connect to {}: {}", name(), zmq_strerror(native))});
    }
    socket_ = std::move(*opened);
    monitor_ = std::move(*watcher);
    state_ = state::connecting;
}

void client_connection::disconnect() {
    monitor_.close();
    socket_.close();
    state_ = state::disconnected;
    server_timeout_ = {};
    next_beat_ = never;
    echo_ = {};
    clock_ = {};
}

void client_connection::lose() {
    disconnect();
    for (auto& [id, session] : sessions_) session.watch->end(status::peer_lost);
    sessions_.clear();
    idle_since_ = now();
    connect_at_ = now() + retry_interval;
}

void client_connection::add_poll_items(std::vector<zmq_pollitem_t>& items) {
    if (state_ == state::disconnected) return;
    items.push_back({monitor_.socket().get(), 0, ZMQ_POLLIN, 0});
    items.push_back({socket_.get(), 0, ZMQ_POLLIN, 0});
}

void client_connection::receive() {
    // Messages first: what the server said before it went still counts.
    for (zmq_frame frame; socket_ && frame.receive(socket_);) {
        if (frame.more()) continue;
        heard_ = listening_.listened();
        auto message = decode_control(frame.bytes());
        if (message) {
            on_message(*message);
        } else if (limit_.allow(now())) {
            log().warn("dropped a control message of {}: {}", name(), message.error().message);
        }
    }
    while (auto event = monitor_.next()) on_monitor(*event);
}

void client_connection::on_monitor(const monitor_event& event) {
    if ((event.what & handshake_failures) != 0) return on_handshake_failure(event);
    if (event.what == ZMQ_EVENT_DISCONNECTED) return lose();
    if (event.what != ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return;
    state_ = state::ready;
    unexplained_failures_ = 0;
    heard_ = listening_.listened();
    for (const auto& [request, call] : calls_) send_question(request, *call);
}

void client_connection::on_handshake_failure(const monitor_event& event) {
    lose();
    const bool unexplained = event.what == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
    if (unexplained && ++unexplained_failures_ < patience_with_handshakes) return;
    unexplained_failures_ = 0;
    fail_calls(
        {status::unauthorized, 0,
         fmt::format("the server at {} did not let us in: {}", name(), explain_handshake_failure(event))});
}

void client_connection::send(const control_message& message) {
    if (state_ == state::ready) socket_.send(encode_control(message));
}

void client_connection::send_question(std::uint64_t request, const waiting_call& call) {
    if (call.session) {
        send({request, hello{*call.session, now()}});
    } else {
        send({request, query{}});
    }
}

void client_connection::send_heartbeat() {
    send({0, heartbeat{{echo_, echo_received_, now()}}});
}

std::shared_ptr<waiting_call> client_connection::take_call(std::uint64_t request) {
    auto node = calls_.extract(request);
    return node ? std::move(node.mapped()) : nullptr;
}

void client_connection::on_message(const control_message& message) {
    if (const auto* opened = std::get_if<welcome>(&message.body)) return on_welcome(message, *opened);
    if (const auto* no = std::get_if<refused>(&message.body)) {
        if (const auto call = take_call(message.request)) call->complete(error{no->code, 0, no->why});
        return;
    }
    if (const auto* list = std::get_if<offers>(&message.body)) {
        const auto call = take_call(message.request);
        if (call && !call->session) call->complete(list->schemes);
        return;
    }
    if (const auto* beat = std::get_if<heartbeat>(&message.body)) {
        echo_ = beat->clocks.sent;
        echo_received_ = now();
        return update_clock(beat->clocks, echo_received_);
    }
    if (const auto* over = std::get_if<goodbye>(&message.body)) return on_goodbye(*over);
    if (limit_.allow(now())) log().warn("dropped a control message of {} that only clients send", name());
}

void client_connection::on_welcome(const control_message& message, const welcome& body) {
    const nanoseconds received = now();
    const session_grant& grant = body.grant;
    const auto call = take_call(message.request);
    if (call == nullptr || !call->session) {
        if (!sessions_.contains(grant.session_id)) send({0, goodbye{grant.session_id, status::closed}});
        return;
    }
    const session_request& asked = *call->session;
    const bool sound = within(grant.granted, asked.wanted) && grant.version >= asked.version_min &&
                       grant.version <= asked.version_max && !sessions_.contains(grant.session_id);
    if (!sound) {
        send({0, goodbye{grant.session_id, status::protocol_error}});
        call->complete(
            error{status::protocol_error, 0,
                  fmt::format("the server at {} granted a session that was not asked for", name())});
        return;
    }
    const boot_identity unknown{};
    if (body.boot == own_boot() && body.boot != unknown) clock_.set_same_host();
    sessions_.emplace(grant.session_id, live_session{call->watch, asked.peer_timeout});
    update_clock(body.clocks, received);
    server_timeout_ = grant.peer_timeout;
    next_beat_ = std::min(next_beat_, received + beat_interval(server_timeout_));
    if (call->complete(grant)) return;
    close_session(grant.session_id);
}

void client_connection::on_goodbye(const goodbye& body) {
    if (body.session_id == 0) return lose();
    const auto found = sessions_.find(body.session_id);
    if (found == sessions_.end()) return;
    found->second.watch->end(body.why);
    sessions_.erase(found);
    if (sessions_.empty()) idle_since_ = now();
}

void client_connection::update_clock(const clock_stamps& stamps, nanoseconds received) {
    clock_.add(stamps, received);
    const auto offset = clock_.offset().count();
    for (auto& [id, session] : sessions_)
        session.watch->clock_offset_ns.store(offset, std::memory_order_relaxed);
}

void client_connection::fail_calls(const error& why) {
    const auto failed = std::exchange(calls_, {});
    for (const auto& [request, call] : failed) call->complete(why);
    idle_since_ = now();
}

error client_connection::no_answer() const {
    const char* advice = state_ == state::ready
                             ? "it took the connection but did not answer in time; is it overloaded?"
                             : "start it, or check host, port and firewall";
    return {status::timed_out, 0, fmt::format("no server answered at {}: {}", name(), advice)};
}

void client_connection::expire_calls(nanoseconds at) {
    for (auto each = calls_.begin(); each != calls_.end();) {
        if (each->second->deadline > at) {
            ++each;
            continue;
        }
        each->second->complete(no_answer());
        each = calls_.erase(each);
        idle_since_ = at;
    }
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
        // Whoever was silent is not asked again on the same connection.
        if (sessions_.empty()) return lose();
    }
}

nanoseconds client_connection::run_timers() {
    const nanoseconds at = now();
    expire_calls(at);
    if (state_ == state::ready && !sessions_.empty()) judge_silence();
    if (state_ == state::disconnected && !calls_.empty() && at >= connect_at_) connect();
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
    nanoseconds next = idle ? idle_since_ + idle_lifetime : never;
    if (state_ == state::ready) next = std::min(next, next_beat_);
    if (state_ == state::disconnected && !calls_.empty()) next = std::min(next, std::max(connect_at_, at));
    for (const auto& [request, call] : calls_) next = std::min(next, call->deadline);
    nanoseconds shortest = never;
    for (const auto& [id, session] : sessions_) shortest = std::min(shortest, session.peer_timeout);
    if (shortest == never || state_ != state::ready) return next;
    const nanoseconds left = shortest - (listening_.listened() - heard_) + std::chrono::milliseconds{1};
    return std::min(next, at + std::min(left, beat_interval(shortest)));
}

}  // namespace accel::core
