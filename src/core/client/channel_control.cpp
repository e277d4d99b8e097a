#include "core/client/channel_core.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/// The control path of a channel: making, losing, replacing and ending its connection.
namespace accel::core {

result<std::unique_ptr<channel_core>> channel_core::connect(std::shared_ptr<context_state> context,
                                                            std::string_view uri,
                                                            const channel_options& options) {
    auto request = prepare_connection(std::move(context), uri, options);
    if (!request) return request.error();
    auto made = open_connection(*request);
    if (!made) return made.error();
    return std::make_unique<channel_core>(std::move(*request), std::move(*made));
}

channel_core::channel_core(connect_request request, connection made)
    : request_(std::move(request)),
      slots_(request_.options.slots),
      spinner_(request_.options.poll),
      epoll_fd_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    for (client_slot& slot : slots_.all()) slot.header = request_.requests->header(slot.content.id.slot);
    backlog_.reserve(slots_.count());
    watch_fd(timer_fd_);
    if (request_.options.reconnect) {
        reconnector_ = std::make_unique<reconnector>(request_);
        watch_fd(reconnector_->event_fd());
    }
    adopt(std::move(made));
}

channel_core::~channel_core() {
    close();
    if (copied_fd_ >= 0) ::close(copied_fd_);
    ::close(timer_fd_);
    ::close(epoll_fd_);
}

void channel_core::watch_fd(int fd) noexcept {
    epoll_event interest{};
    interest.events = EPOLLIN;
    ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &interest);
}

void channel_core::forget_fd(int fd) noexcept {
    ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void channel_core::adopt(connection made) noexcept {
    connection_ = std::move(made);
    ++epoch_;
    connection_.path->activate();
    watch_fd(connection_.events->event_fd());
    watch_fd(connection_.watch->event_fd());
    state_ = state::connected;
    connected_in_ = stamp_.generation();
}

/// How long a link may take to give back what its server keeps.
constexpr nanoseconds release_grace = std::chrono::milliseconds{1'100};
/// How long the control plane may take to say why the link is lost.
constexpr nanoseconds doubt_patience = std::chrono::milliseconds{100};

/// The link is lost and cannot tell an orderly stop from a death; the control plane can, and is about to.
/// True: it is waited for, and calls that come now wait with it. False: the channel is lost.
bool channel_core::doubt(status why) noexcept {
    const status told = connection_.watch->ended();
    if (why != status::peer_lost || told != status::ok) {
        lose(told != status::ok ? told : why);
        return false;
    }
    if (!in_doubt()) name_by_ = now() + std::min(doubt_patience, request_.options.peer_timeout);
    detours_ = true;
    return true;
}

/// A server has kept lent memory for too long. Without its session it cannot reach that memory any more.
void channel_core::reclaim() noexcept {
    log().warn(
        "{}: the session ends, for its server has not let go of lent memory within peer_timeout of the "
        "end of a call",
        request_.peer.text());
    lose(status::peer_lost);
}

/// Ends the connection. Calls whose memory nobody touches complete at once, the others when the link has
/// closed.
void channel_core::lose(status why) noexcept {
    if (state_ != state::connected) return;
    if (why != status::closed)
        log().limited(request_.peer.host).info("{} lost: {}", request_.peer.text(), to_string(why));
    state_ = state::losing;
    connected_in_ = nowhere;
    now_ = now();
    loss_ = why == status::closed ? status::closed : status::peer_lost;
    name_by_ = never;
    forget_fd(connection_.events->event_fd());
    forget_fd(connection_.watch->event_fd());
    release_by_ = deadline_after(request_.options.close_timeout);
    for (client_slot& slot : slots_.all()) {
        if (slot.state == slot_state::in_flight) end_early(slot, loss_);
        if (slot.state == slot_state::settling) release_by_ = std::min(release_by_, slot.deadline);
    }
    slots_.set_next_deadline(never);
}

/// Closes the lost link as far as it goes now; once nothing touches our memory, every call is settled.
void channel_core::settle_lost() noexcept {
    if (state_ == state::losing) {
        if (now_ >= release_by_) connection_.path->peer_left();
        const bool overdue = now_ - release_by_ > request_.options.close_timeout;
        if (!connection_.path->close() && !overdue) return;
        settle_calls();
        state_ = ending_ ? state::closed : state::lost;
        close_session(request_, connection_);
        if (reconnector_ && !ending_) reconnector_->start();
    }
    if (state_ != state::lost || !reconnector_) return;
    if (auto made = reconnector_->take()) {
        retire_connection();
        adopt(std::move(*made));
        ++statistics_.reconnects;
    }
}

void channel_core::settle_calls() noexcept {
    for (client_slot& slot : slots_.all()) {
        slot.owed = false;
        const bool copied = slot.staged && (*staging_)[slot.content.id.slot].copying();
        if (slot.state == slot_state::settling && !copied) slots_.finish(slot);
        if (slot.state == slot_state::quarantined) slots_.put_free(slot);
    }
    statistics_.quarantined = 0;
}

/// Keeps a lost connection for as long as the application holds responses that lie in it.
void channel_core::retire_connection() noexcept {
    const auto holds = [this](const client_slot& slot) {
        return slot.holds_response && slot.epoch == epoch_;
    };
    const auto all = slots_.all();
    if (std::any_of(all.begin(), all.end(), holds)) retired_.push_back({epoch_, std::move(connection_)});
}

/// A response that came over a connection that has been replaced.
void channel_core::consumed_late(client_slot& slot) noexcept {
    for (std::size_t i = 0; i < retired_.size(); ++i) {
        if (retired_[i].epoch != slot.epoch) continue;
        retired_[i].held.path->consumed(slot.content.id.slot);
        const auto all = slots_.all();
        const bool last = std::none_of(all.begin(), all.end(), [&](const client_slot& other) {
            return other.holds_response && other.epoch == slot.epoch;
        });
        if (last) retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
        return;
    }
}

void channel_core::sleep(nanoseconds deadline) noexcept {
    nanoseconds until = std::min(deadline, next_look());
    const bool copying = copies_go_on();
    // A link that is still closing has no descriptor to wait on; nor has all that calls may wait for.
    if (state_ == state::losing) until = std::min(until, now() + std::chrono::milliseconds{1});
    if (copying && !staging_->wakes()) until = std::min(until, now() + std::chrono::microseconds{50});
    if (in_doubt()) {
        pollfd told{connection_.watch->event_fd(), POLLIN, 0};
        return sleep_on({&told, 1}, until);
    }
    if (state_ == state::connected && copying) {
        pollfd all{epoll_fd_, POLLIN, 0};
        sleep_on({&all, 1}, until);
        return connection_.events->disarm();
    }
    if (state_ == state::connected) {
        (void)connection_.events->sleep(connection_.watch->event_fd(), until);
        return connection_.events->disarm();
    }
    std::array<pollfd, 2> fds{
        {{reconnector_ ? reconnector_->event_fd() : -1, POLLIN, 0}, {copying ? copied_fd_ : -1, POLLIN, 0}}};
    sleep_on(fds, until);
}

/// When there is something to do though nothing says so: a deadline, or a link that may have room by now.
nanoseconds channel_core::next_look() const noexcept {
    const nanoseconds deadline = std::min(slots_.next_deadline(), name_by_);
    return backlog_.empty() ? deadline : std::min(deadline, now() + std::chrono::milliseconds{1});
}

bool channel_core::arm() noexcept {
    if (slots_.ready() > 0) return false;
    const bool copying = copies_go_on();
    if (copying && !staging_->wakes()) return false;
    // A copy's end may be told after it was seen.
    if (!copying && copied_fd_ >= 0) clear_event(copied_fd_);
    arm_timer();
    if (state_ != state::connected) return state_ != state::losing;
    connection_.events->disarm();
    return connection_.watch->ended() == status::ok && connection_.events->arm();
}

/// The timer makes `event_fd` readable. Set again only when the time has moved.
void channel_core::arm_timer() noexcept {
    const nanoseconds next = next_look();
    if (next == timer_set_) return;
    timer_set_ = next;
    itimerspec when{};
    if (next != never) {
        when.it_value.tv_sec = static_cast<std::time_t>(next.count() / 1'000'000'000);
        when.it_value.tv_nsec = static_cast<long>(next.count() % 1'000'000'000);
    }
    ::timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &when, nullptr);
}

void channel_core::close() noexcept {
    if (state_ == state::closed) return;
    ending_ = true;
    lose(status::closed);
    loss_ = status::closed;
    const nanoseconds deadline = deadline_after(request_.options.close_timeout + release_grace);
    while (state_ == state::losing) {
        now_ = now();
        settle_lost();
        if (state_ != state::losing) break;
        if (now_ >= deadline) {
            log()
                .limited(request_.peer.host)
                .warn("{}: the transport still holds lent memory after close_timeout", request_.peer.text());
            settle_calls();
            close_session(request_, connection_);
            break;
        }
        sleep_on({}, now_ + std::chrono::microseconds{200});
    }
    if (!end_staging(deadline)) {
        log()
            .limited(request_.peer.host)
            .warn("{}: a GPU still copies lent memory after close_timeout", request_.peer.text());
    }
    reconnector_.reset();
    state_ = state::closed;
}

channel_statistics channel_core::statistics() noexcept {
    return statistics_;
}

}  // namespace accel::core
