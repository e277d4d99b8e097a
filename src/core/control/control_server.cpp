#include "core/control/control_server.hpp"

#include "core/context_state.hpp"
#include "core/control/control_message.hpp"
#include "core/control/handshake_log.hpp"
#include "core/control/liveness.hpp"
#include "core/control/log_limit.hpp"
#include "core/control/session_opener.hpp"
#include "core/control/zmq_socket.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr std::size_t most_peers = 65'536;
constexpr std::uint32_t most_openings = 4'096;  ///< of one peer
constexpr int listen_backlog = 1'024;
constexpr int goodbye_linger_ms = 100;

/// One control connection of a client.
struct peer {
    std::string id;    ///< ZeroMQ's routing id
    std::string name;  ///< for the log
    std::unordered_set<std::uint64_t> sessions;
    std::uint32_t opening = 0;
    nanoseconds peer_timeout = never;
    nanoseconds next_beat = never;
    nanoseconds heard{};  ///< on the listening clock
    nanoseconds echo{};
    nanoseconds echo_received{};
};

struct ended_session {
    std::uint64_t id;
    status why;
};

std::string name_of(const zmq_frame& frame) {
    const auto key = frame.property("User-Id");
    const auto address = frame.property("Peer-Address");
    return key.empty() ? fmt::format("a client at {}", address)
                       : fmt::format("the client {} at {}", key, address);
}

}  // namespace

class control_server::impl {
  public:
    impl(zmq_socket socket, handshake_log refusals, std::shared_ptr<const security_identity> security,
         nanoseconds peer_timeout, session_host& host)
        : host_(host),
          security_(std::move(security)),
          peer_timeout_(peer_timeout),
          boot_(read_boot_identity()),
          socket_(std::move(socket)),
          refusals_(std::move(refusals)),
          port_(socket_.bound_port()),
          opener_(host, wake_),
          thread_([this] { run(); }) {}

    ~impl() {
        stopping_.store(true);
        wake_.set();
        thread_.join();
    }

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    void end_session(std::uint64_t id, status why) {
        {
            const std::lock_guard lock{mutex_};
            ended_.push_back({id, why});
        }
        wake_.set();
    }

  private:
    void run();
    void receive();
    void on_frame(const std::string& id, zmq_frame& frame);
    void on_malformed(const std::string& id, zmq_frame& frame, const error& why);
    void on_hello(const std::string& id, const zmq_frame& frame, std::uint64_t request, hello& body);
    void on_heartbeat(const std::string& id, const heartbeat& body);
    void on_goodbye(peer& from, const goodbye& body);
    void take_opened();
    void welcome_peer(opened_session& opened);
    void refuse_opened(const opened_session& opened, const error& why);
    void take_ended();
    void run_timers(nanoseconds at);
    void lose(const std::string& id, status why);
    void say_goodbye();
    bool send(const std::string& id, const control_message& message);
    [[nodiscard]] peer* find_peer(const std::string& id);
    [[nodiscard]] bool silent(const peer& each) const;

    session_host& host_;
    const std::shared_ptr<const security_identity> security_;  // its keys count for as long as it lives
    const nanoseconds peer_timeout_;
    const boot_identity boot_;
    zmq_socket socket_;
    handshake_log refusals_;  // destroyed before the socket it watches
    const std::uint16_t port_;
    wake_signal wake_;
    session_opener opener_;
    std::mutex mutex_;
    std::vector<ended_session> ended_;
    std::atomic<bool> stopping_{false};
    listening_clock listening_;
    std::unordered_map<std::string, peer> peers_;
    std::unordered_map<std::uint64_t, std::string> sessions_;  ///< session id → peer id
    std::unordered_map<std::uint64_t, status> ended_early_;    ///< before the welcome was sent
    nanoseconds next_timer_ = never;
    log_limit limit_;
    std::thread thread_;
};

void control_server::impl::run() {
    while (!stopping_.load()) {
        std::array<zmq_pollitem_t, 3> items{{{nullptr, wake_.fd(), ZMQ_POLLIN, 0},
                                             {socket_.get(), 0, ZMQ_POLLIN, 0},
                                             {refusals_.socket().get(), 0, ZMQ_POLLIN, 0}}};
        const long timeout = poll_timeout(now(), next_timer_);
        if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout) < 0 && zmq_errno() == ETERM)
            break;
        if ((items[0].revents & ZMQ_POLLIN) != 0) wake_.clear();
        listening_.advance(now(), std::chrono::milliseconds{timeout});
        receive();
        refusals_.take_events();
        take_opened();
        take_ended();
        if (const nanoseconds at = now(); at >= next_timer_) run_timers(at);
    }
    say_goodbye();
}

void control_server::impl::receive() {
    for (zmq_frame head; head.receive(socket_);) {
        const std::string id{head.text()};
        if (!head.more()) continue;
        zmq_frame frame;
        if (!frame.receive(socket_)) continue;
        if (!frame.more()) {
            on_frame(id, frame);
            continue;
        }
        for (bool more = true; more;) {
            zmq_frame rest;
            more = rest.receive(socket_) && rest.more();
        }
        on_malformed(id, frame, {status::protocol_error, 0, "it has more than one frame"});
    }
}

void control_server::impl::on_frame(const std::string& id, zmq_frame& frame) {
    auto message = decode_control(frame.bytes());
    if (!message) return on_malformed(id, frame, message.error());
    peer* from = find_peer(id);
    if (from != nullptr) from->heard = listening_.listened();
    if (auto* wish = std::get_if<hello>(&message->body)) return on_hello(id, frame, message->request, *wish);
    if (std::holds_alternative<query>(message->body)) {
        send(id, {message->request, offers{host_.offers()}});
        return;
    }
    if (const auto* beat = std::get_if<heartbeat>(&message->body)) return on_heartbeat(id, *beat);
    if (const auto* over = std::get_if<goodbye>(&message->body)) {
        if (from != nullptr) on_goodbye(*from, *over);
        return;
    }
    on_malformed(id, frame, {status::protocol_error, 0, "only servers send such"});
}

void control_server::impl::on_malformed(const std::string& id, zmq_frame& frame, const error& why) {
    if (limit_.allow(now())) log().warn("dropped a control message of {}: {}", name_of(frame), why.message);
    const std::uint64_t request = request_of_malformed(frame.bytes());
    if (request != 0)
        send(id, {request, refused{why.code, fmt::format("the server refused: {}", why.message)}});
}

void control_server::impl::on_hello(const std::string& id, const zmq_frame& frame, std::uint64_t request,
                                    hello& body) {
    const nanoseconds received = now();
    if (peers_.size() >= most_peers && find_peer(id) == nullptr) {
        send(id, {request, refused{status::overloaded, "this server has too many clients; try again later"}});
        return;
    }
    peer& from = peers_[id];
    if (from.id.empty()) {
        from.id = id;
        from.name = name_of(frame);
        from.heard = listening_.listened();
    }
    from.peer_timeout = std::min(from.peer_timeout, body.request.peer_timeout);
    from.next_beat = std::min(from.next_beat, received + beat_interval(from.peer_timeout));
    next_timer_ = std::min(next_timer_, from.next_beat);
    open_job job{id, from.name, request, std::move(body.request), body.sent, received};
    if (from.opening < most_openings && opener_.submit(std::move(job))) {
        ++from.opening;
        return;
    }
    send(id, {request,
              refused{status::overloaded, "too many sessions are being opened at once; try again later"}});
}

void control_server::impl::on_heartbeat(const std::string& id, const heartbeat& body) {
    peer* from = find_peer(id);
    if (from == nullptr) {
        // It was taken for dead, or never had a session: its sessions are over.
        send(id, {0, goodbye{0, status::peer_lost}});
        return;
    }
    from->echo = body.clocks.sent;
    from->echo_received = now();
}

void control_server::impl::on_goodbye(peer& from, const goodbye& body) {
    const status why = body.why == status::closed ? status::closed : status::peer_lost;
    if (body.session_id == 0) return lose(from.id, why);
    if (from.sessions.erase(body.session_id) == 0) {
        // Both ends may end a session at once; anything else is somebody else's session.
        const bool foreign = sessions_.contains(body.session_id);
        if (foreign && limit_.allow(now())) {
            log().warn("{} tried to close session {}, which is not its own; nothing was done", from.name,
                       body.session_id);
        }
        return;
    }
    sessions_.erase(body.session_id);
    host_.close_session(body.session_id, why);
}

void control_server::impl::take_opened() {
    for (opened_session& each : opener_.take()) {
        peer* to = find_peer(each.job.peer_id);
        if (to != nullptr && to->opening > 0) --to->opening;
        if (!each.outcome) {
            refuse_opened(each, each.outcome.error());
        } else {
            welcome_peer(each);
        }
    }
}

void control_server::impl::refuse_opened(const opened_session& opened, const error& why) {
    send(opened.job.peer_id, {opened.job.request, refused{why.code, why.message}});
}

void control_server::impl::welcome_peer(opened_session& opened) {
    const open_job& job = opened.job;
    session_grant& grant = *opened.outcome;
    const std::uint64_t session_id = grant.session_id;
    if (const auto early = ended_early_.find(session_id); early != ended_early_.end()) {
        refuse_opened(opened, {early->second, 0, "the server ended the session at once"});
        ended_early_.erase(early);
        return;
    }
    if (grant.version < job.wish.version_min || grant.version > job.wish.version_max) {
        const error why{
            status::version_mismatch, 0,
            fmt::format("this server speaks protocol versions {0} to {0}, the client {1} to {2}; update the "
                        "older end",
                        grant.version, job.wish.version_min, job.wish.version_max)};
        log().warn("refused a session of {}: {}", job.peer_name, why.message);
        host_.close_session(session_id, status::closed);
        return refuse_opened(opened, why);
    }
    peer* to = find_peer(job.peer_id);
    if (to == nullptr) return host_.close_session(session_id, status::peer_lost);
    to->sessions.insert(session_id);
    sessions_[session_id] = to->id;
    to->heard = listening_.listened();  // how long the opening took is not its silence
    grant.peer_timeout = peer_timeout_;
    const welcome answer{std::move(grant), boot_, {job.sent, job.received, now()}};
    if (!send(to->id, {job.request, answer})) lose(job.peer_id, status::peer_lost);
}

void control_server::impl::take_ended() {
    std::vector<ended_session> taken;
    {
        const std::lock_guard lock{mutex_};
        taken.swap(ended_);
    }
    const bool all_welcomed = opener_.idle();
    if (all_welcomed) ended_early_.clear();
    for (const ended_session& each : taken) {
        const auto found = sessions_.find(each.id);
        if (found == sessions_.end()) {
            if (!all_welcomed) ended_early_.emplace(each.id, each.why);
            continue;
        }
        send(found->second, {0, goodbye{each.id, each.why}});
        if (peer* owner = find_peer(found->second)) owner->sessions.erase(each.id);
        sessions_.erase(found);
    }
}

bool control_server::impl::silent(const peer& each) const {
    const bool waits_for_us = each.opening > 0 && each.sessions.empty();
    return !waits_for_us && listening_.listened() - each.heard > peer_timeout_;
}

void control_server::impl::run_timers(nanoseconds at) {
    std::vector<std::string> lost;
    nanoseconds next = peers_.empty() ? never : at + beat_interval(peer_timeout_);
    for (auto& [id, each] : peers_) {
        bool alive = !silent(each);
        if (alive && at >= each.next_beat) {
            alive = send(id, {0, heartbeat{{each.echo, each.echo_received, now()}}});
            each.next_beat = at + beat_interval(each.peer_timeout);
        }
        if (!alive) lost.push_back(id);
        next = std::min(next, each.next_beat);
    }
    next_timer_ = next;
    for (const std::string& id : lost) {
        send(id, {0, goodbye{0, status::peer_lost}});
        if (peer* gone = find_peer(id); gone != nullptr && !gone->sessions.empty())
            log().warn("{} went silent; its {} sessions are ended", gone->name, gone->sessions.size());
        lose(id, status::peer_lost);
    }
}

void control_server::impl::lose(const std::string& id, status why) {
    auto node = peers_.extract(id);
    if (!node) return;
    for (const std::uint64_t session : node.mapped().sessions) {
        sessions_.erase(session);
        host_.close_session(session, why);
    }
}

void control_server::impl::say_goodbye() {
    bool told = false;
    for (const auto& [id, each] : peers_) told = send(id, {0, goodbye{0, status::closed}}) || told;
    if (told) socket_.set(ZMQ_LINGER, goodbye_linger_ms);
}

/// False: the peer is gone. A message that finds its queue full is dropped: such a peer does not read, and
/// will be judged.
bool control_server::impl::send(const std::string& id, const control_message& message) {
    const bool sent = socket_.send(std::as_bytes(std::span{id.data(), id.size()}), true);
    if (!sent) return zmq_errno() == EAGAIN;
    return socket_.send(encode_control(message));
}

peer* control_server::impl::find_peer(const std::string& id) {
    const auto found = peers_.find(id);
    return found != peers_.end() ? &found->second : nullptr;
}

control_server::control_server(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}
control_server::~control_server() = default;

result<std::unique_ptr<control_server>> control_server::listen(
    context_state& context, const std::string& host, std::uint16_t port,
    std::shared_ptr<const security_identity> security, nanoseconds peer_timeout, session_host& host_core) {
    auto endpoint = tcp_endpoint(host, port, true);
    if (!endpoint) return endpoint.error();
    auto socket = zmq_socket::open(context.zmq(), ZMQ_ROUTER);
    if (!socket) return socket.error();
    socket->set(ZMQ_ROUTER_MANDATORY, 1);
    socket->set(ZMQ_BACKLOG, listen_backlog);
    socket->set(ZMQ_MAXMSGSIZE, std::int64_t{max_control_bytes});
    if (auto secured = secure_socket(socket->get(), *security, true); !secured) return secured.error();
    auto refusals = handshake_log::open(context.zmq(), *socket);
    if (!refusals) return refusals.error();
    if (!socket->bind(*endpoint)) {
        const int native = zmq_errno();
        return error{native == EADDRINUSE ? status::invalid_argument : status::system_error, native,
                     fmt::format("cannot listen on {}: {}; choose another host or port",
                                 host_and_port(host, port), zmq_strerror(native))};
    }
    auto made = std::make_unique<impl>(std::move(*socket), std::move(*refusals), std::move(security),
                                       peer_timeout, host_core);
    return std::unique_ptr<control_server>{new control_server{std::move(made)}};
}

std::uint16_t control_server::port() const noexcept {
    return impl_->port();
}

void control_server::end_session(std::uint64_t session_id, status why) noexcept {
    impl_->end_session(session_id, why);
}

}  // namespace accel::core
