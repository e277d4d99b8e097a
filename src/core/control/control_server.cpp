// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_server.hpp"

#include "core/control/control_server_core.hpp"
#include "core/guarded.hpp"
#include "core/log.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/thread.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/// Rounds of a control server: events, then timers; each round is bounded.
namespace accel::core {
namespace {

constexpr std::size_t events_at_once = 64;
/// A turn reads a few messages or goes on with a handshake. Some cost much more than others, so a round has both
/// limits.
constexpr int max_turns_per_round = 64;
constexpr nanoseconds round_time = std::chrono::milliseconds{2};
/// Each takes some tenth of a millisecond.
constexpr int max_key_checks_per_round = 16;
constexpr std::uint64_t door_tag = 0;
constexpr std::uint64_t wake_tag = ~std::uint64_t{0};
/// Timers run no more often than this, so that many clients cost no more than one pass over them each time.
constexpr nanoseconds timer_grain = std::chrono::milliseconds{2};
constexpr nanoseconds longest_sleep = std::chrono::seconds{60};

bool watch_fd(int epoll, int fd, std::uint64_t tag) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Limits connections by the descriptors of this process, half of which are for sessions.
control_limits fitted(control_limits limits) {
    const std::uint32_t descriptors = descriptor_limit();
    if (const std::uint32_t most = std::max(descriptors / 3, 1U); most < limits.max_connections) {
        limits.max_connections = most;
        // Other clients have a share of the rest.
        limits.max_client_connections = std::min(limits.max_client_connections, most - most / 4);
    }
    limits.max_half_open = std::min(limits.max_half_open, std::max(descriptors / 8, 4U));
    limits.max_client_connections = std::clamp(limits.max_client_connections, 1U, limits.max_connections);
    return limits;
}

}  // namespace

control_server::impl::impl(listener door, unique_fd epoll, std::shared_ptr<live_security> security,
                           nanoseconds peer_timeout, session_host& host, const control_limits& limits)
    : host_(host),
      security_(std::move(security)),
      peer_timeout_(peer_timeout),
      limits_(fitted(limits)),
      boot_(read_boot_identity()),
      door_(std::move(door)),
      epoll_(std::move(epoll)),
      opener_(host, wake_),
      identity_(security_->current()),
      key_generation_(security_->generation()),
      handshakes_(limits.max_handshakes, limits.max_handshakes) {
    const bool watched = watch_fd(epoll_.get(), door_.fd(), door_tag) && watch_fd(epoll_.get(), wake_.fd(), wake_tag);
    if (!watched) unwatched_ = errno;
}

control_server::impl::~impl() {
    stopping_.store(true);
    wake_.set();
    if (thread_.joinable()) thread_.join();
}

result<void> control_server::impl::start() {
    if (!wake_.open()) return no_descriptor("for the control plane", wake_.failure());
    if (unwatched_ != 0) return cannot_watch("the control plane", unwatched_);
    opener_.start();
    thread_ = start_thread("accel-control", [this] { run(); });
    return {};
}

void control_server::impl::end_session(std::uint64_t id, status why, ended_sessions notice) noexcept {
    notice.front() = {id, why};
    {
        const std::lock_guard lock{mutex_};
        ended_.splice(ended_.end(), notice);
    }
    wake_.set();
}

void control_server::impl::run() {
    while (!stopping_.load()) {
        try {
            progress(longest_sleep);
        } catch (const std::bad_alloc&) {
            limited_log("memory").error("no memory is left for the control plane; it tries again");
            sleep_on({}, now() + pause_without_memory);
        }
    }
    try {
        take_ended();
        say_goodbye();
    } catch (const std::bad_alloc&) {
        log().error("no memory is left to notify clients that the server is closing");
    }
}

void control_server::impl::progress(nanoseconds longest) {
    take_events(time_to_sleep(longest));
    // First of all, so that a flood of requests delays no heartbeat.
    if (const nanoseconds at = now(); at >= next_timer_) run_timers(at);
    take_turns();
    start_handshakes();
    say_going_away();
    take_opened();
    take_ended();
    look_at_keys();
    dropped_.clear();
}

int control_server::impl::time_to_sleep(nanoseconds longest) const noexcept {
    if (!turns_.empty() || !unchecked_.empty() || (!queued_.empty() && !queue_waits_)) return 0;
    nanoseconds until = next_timer_;
    const nanoseconds at = now();
    if (security_->has_files()) until = std::min(until, at + key_look_interval);
    if (queue_waits_) until = std::min(until, at + std::chrono::milliseconds{5});
    if (door_closed_until_ > at) until = std::min(until, door_closed_until_);
    const nanoseconds left = std::clamp(until - at, nanoseconds{0}, longest);
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void control_server::impl::take_events(int timeout_ms) {
    std::array<epoll_event, events_at_once> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    listening_.advance(now(), std::chrono::milliseconds{timeout_ms});
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == wake_tag) {
            wake_.clear();
            continue;
        }
        if (event.data.u64 == door_tag) {
            accept_some();
            continue;
        }
        if (server_connection* which = find(event.data.u64)) await_turn(*which, event.events);
    }
}

/// Clients take turns: one with much to do, on however many connections, keeps no other waiting.
void control_server::impl::await_turn(server_connection& which, std::uint32_t events) {
    which.events |= events;
    if (!which.has_turn) turns_.of(which.client.account()).push_back(which.id);
    which.has_turn = true;
}

void control_server::impl::take_turns() {
    const nanoseconds end = deadline_after(round_time);
    for (int left = max_turns_per_round; left > 0; --left) {
        auto* line = turns_.next([](const std::string&) { return true; });
        if (line == nullptr) return;
        // Those that have ended meanwhile take no turn.
        server_connection* which = nullptr;
        for (; which == nullptr && !line->empty(); line->pop_front()) which = find(line->front());
        if (which == nullptr) continue;
        try {
            take_turn(*which);
        } catch (const std::bad_alloc&) {
            limited_log(which->client.account()).error("no memory is left for {}", which->client.text());
            lose(*which, status::out_of_memory);
        }
        if (now() >= end) return;
    }
}

void control_server::impl::take_turn(server_connection& which) {
    which.has_turn = false;
    const std::uint32_t events = std::exchange(which.events, 0);
    if ((events & EPOLLOUT) != 0) sync_output(which);
    if (find(which.id) == nullptr || (events & ~std::uint32_t{EPOLLOUT}) == 0) return;
    // A broken connection is read as well: what came first still counts.
    if (which.paused_until == nanoseconds{0}) return on_readable(which);
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) lose(which, status::peer_lost);
}

/// Each client is checked again when keys have changed, some in each round.
void control_server::impl::look_at_keys() {
    security_->look_at_files();
    if (security_->generation() != key_generation_) {
        const std::uint64_t generation = security_->generation();
        identity_ = security_->current();
        unchecked_.clear();
        for (const auto& [id, each] : connections_)
            if (each->stage == connection_stage::serving && !identity_->insecure()) unchecked_.push_back(id);
        key_generation_ = generation;
    }
    // Each leaves the line once it has been checked: memory may run out before.
    for (int left = max_key_checks_per_round; left > 0 && !unchecked_.empty(); --left) {
        server_connection* which = find(unchecked_.front());
        if (which != nullptr && which->stage == connection_stage::serving) check_keys(*which);
        unchecked_.pop_front();
    }
}

/// A client whose key has gone, or whose certificate has expired, loses its sessions.
void control_server::impl::check_keys(server_connection& which) {
    auto until = which.stream.tls()->admitted_by(*identity_->keys);
    if (until) {
        which.admitted_until = *until;
        next_timer_ = std::min(next_timer_, time_to_look(*until, now()));
        return;
    }
    log().warn("{} is no longer authorised ({}); closing its {} sessions", which.client.text(), until.error().message,
               which.sessions.size());
    end_sessions(which, status::unauthorized);
    send(which, {0, goodbye{0, status::unauthorized}});
    leave(which);
}

void control_server::impl::run_timers(nanoseconds at) {
    nanoseconds next = never;
    timed_.clear();
    for (const auto& [id, each] : connections_) timed_.push_back(id);
    for (const std::uint64_t id : timed_)
        if (server_connection* each = find(id)) next = std::min(next, check_timers(*each, at));
    next_timer_ = next == never ? never : std::max(next, at + timer_grain);
    if (door_closed_until_ != nanoseconds{0} && at >= door_closed_until_) {
        const bool open = watch_fd(epoll_.get(), door_.fd(), door_tag);
        door_closed_until_ = open ? nanoseconds{} : at + pause_without_memory;
    }
    if (door_closed_until_ != nanoseconds{0}) next_timer_ = std::min(next_timer_, door_closed_until_);
}

/// Runs the timers of one connection; returns when they are due again.
nanoseconds control_server::impl::check_timers(server_connection& each, nanoseconds at) {
    // It waits for this server. If room is short, it is dropped like others.
    if (each.stage == connection_stage::queued) return never;
    if (each.half_open()) {
        const nanoseconds end = each.since + limits_.half_open_timeout;
        if (at < end) return end;
        if (each.stage != connection_stage::leaving)
            limited_log(each.client.account())
                .warn("closed a connection from {}: it sent no greeting in time", each.client.text());
        drop(each);
        return never;
    }
    const bool unused = each.sessions.empty() && each.opening == 0;
    if (unused && at >= each.idle_since + limits_.idle_timeout) {
        drop(each);
        return never;
    }
    if (silence_left(each) <= nanoseconds{0} && !shows_life(each)) {
        if (find(each.id) == nullptr) return never;
        if (!each.sessions.empty())
            limited_log(each.client.account())
                .warn("{} went silent; closing its {} sessions", each.client.text(), each.sessions.size());
        send(each, {0, goodbye{0, status::peer_lost}});
        lose(each, status::peer_lost);
        return never;
    }
    if (each.paused_until != nanoseconds{0} && at >= each.paused_until) {
        each.paused_until = {};
        sync_output(each);
        if (find(each.id) == nullptr) return never;
        await_turn(each, EPOLLIN);
    }
    if (wall_now() >= each.admitted_until) {
        unchecked_.push_back(each.id);
        each.admitted_until = wall_time::max();
    }
    if (at >= each.next_beat && unused) each.next_beat = never;  // no session of it could be lost
    if (at >= each.next_beat) {
        send(each, {0, heartbeat{{each.echo, each.echo_received, now()}}});
        if (find(each.id) == nullptr) return never;
        each.next_beat = at + beat_interval(each.peer_timeout);
    }
    nanoseconds next = std::min(each.next_beat, time_to_look(each.admitted_until, at));
    if (each.paused_until != nanoseconds{0}) next = std::min(next, each.paused_until);
    if (unused) next = std::min(next, each.idle_since + limits_.idle_timeout);
    const nanoseconds left = silence_left(each);
    // A time-out may be as long as the type allows.
    return left >= longest_sleep ? std::min(next, at + longest_sleep)
                                 : std::min(next, at + left + std::chrono::milliseconds{1});
}

/// Reads its input before it is called silent: that may have waited behind other busy connections.
bool control_server::impl::shows_life(server_connection& each) {
    const std::uint64_t id = each.id;
    read_messages(each);
    return find(id) != nullptr && silence_left(each) > nanoseconds{0};
}

void control_server::impl::watch(server_connection& which, std::uint32_t events) noexcept {
    if (which.watched == events) return;
    epoll_event event{};
    event.events = events;
    event.data.u64 = which.id;
    // Without events it is taken out, because an epoll tells of broken connections in any case.
    const int change = which.watched == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    const bool done = ::epoll_ctl(epoll_.get(), change, which.stream.fd(), &event) == 0;
    if (done || change != EPOLL_CTL_ADD) {
        which.watched = events;
        return;
    }
    // Nothing would be heard of it. Its peer connects anew, and timers end it here.
    ::shutdown(which.stream.fd(), SHUT_RDWR);
}

/// Watches for writability while the socket takes no bytes.
void control_server::impl::sync_output(server_connection& which) {
    if (which.stage == connection_stage::shaking) return shake_hands(which);
    if (which.stream.wants_to_write() && which.stream.flush() == tls_outcome::failed)
        return lose(which, status::peer_lost);
    (void)count_unsent(which);
    watch(which, events_of(which));
    if (which.stage == connection_stage::leaving && !which.stream.wants_to_write()) which.stream.finish();
}

server_connection* control_server::impl::find(std::uint64_t id) noexcept {
    const auto found = connections_.find(id);
    return found != connections_.end() ? found->second.get() : nullptr;
}

control_server::control_server(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}
control_server::~control_server() = default;

result<std::unique_ptr<control_server>> control_server::listen(const std::string& host, std::uint16_t port,
                                                               std::shared_ptr<live_security> security,
                                                               nanoseconds peer_timeout, session_host& host_core,
                                                               const control_limits& limits) {
    auto door = listener::open(host, port);
    if (!door) return door.error();
    unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.open()) return no_descriptor("for the control plane", epoll.failure());
    auto made = std::make_unique<impl>(std::move(*door), std::move(epoll), std::move(security), peer_timeout, host_core,
                                       limits);
    if (auto started = made->start(); !started) return started.error();
    return std::unique_ptr<control_server>{new control_server{std::move(made)}};
}

std::uint16_t control_server::port() const noexcept {
    return impl_->port();
}

void control_server::end_session(std::uint64_t session_id, status why, ended_sessions notice) noexcept {
    impl_->end_session(session_id, why, std::move(notice));
}

void control_server::drain() noexcept {
    impl_->drain();
}

void control_server::wake() noexcept {
    impl_->wake();
}

}  // namespace accel::core
