// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_lifecycle.hpp"

#include "core/cancel_board.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace accel::core {
namespace {

/// How long the control plane may take to say why the link is lost.
constexpr nanoseconds doubt_patience = std::chrono::seconds{1};
/// How long a link may take to get back what its server keeps, beyond `close_timeout`: longer than `local` waits for a
/// server's worker. After that nobody knows whether the worker still reads.
constexpr nanoseconds recall_patience = std::chrono::milliseconds{1'100};
/// How often a link is looked at that is still closing: it has no descriptor to wait on.
constexpr nanoseconds losing_interval = std::chrono::milliseconds{1};

}  // namespace

channel_lifecycle::channel_lifecycle(const connect_request& request, channel_connection made, event_set& wakeups)
    : request_(request), wakeups_(wakeups) {
    if (request_.options.reconnect) {
        reconnector_ = std::make_unique<reconnector>(request_);
        wakeups_.add(reconnector_->event_fd());
    }
    adopt(std::move(made));
}

void channel_lifecycle::adopt(channel_connection made) {
    connection_ = std::move(made);
    ++epoch_;
    path().activate();
    if (watched_) wakeups_.add(events().event_fd());
    wakeups_.add(watch().event_fd());
    state_ = state::connected;
    connected_in_ = stamp_.generation();
}

void channel_lifecycle::be_watched() noexcept {
    if (watched_ || inherited()) return;
    watched_ = true;
    if (has_link()) wakeups_.add(events().event_fd());
}

status channel_lifecycle::why_unusable() const noexcept {
    return inherited() ? status::invalid_state : loss_;
}

/// The link cannot tell an orderly stop from a death; the control plane can, and is about to.
status channel_lifecycle::doubt(status why) noexcept {
    const status told = watch().ended();
    if (told != status::ok) return told;
    if (why != status::peer_lost) return why;
    if (!in_doubt()) doubt_ends_ = now() + std::min(doubt_patience, request_.options.peer_timeout);
    return status::ok;
}

void channel_lifecycle::leave(status why) noexcept {
    state_ = state::leaving;
    connected_in_ = nowhere;
    loss_ = loss_for(why);
}

bool channel_lifecycle::lose(status why) noexcept {
    if (!has_link()) return false;
    if (why != status::closed)
        limited_log(request_.peer.host).info("{} lost: {}", request_.peer.text(), to_string(why));
    // The link may wait for a handler that works in this process.
    if (connection_.session.cancels != nullptr) connection_.session.cancels->end();
    state_ = state::losing;
    connected_in_ = nowhere;
    loss_ = loss_for(why);
    doubt_ends_ = never;
    if (watched_) wakeups_.remove(events().event_fd());
    wakeups_.remove(watch().event_fd());
    release_by_ = deadline_after(request_.options.close_timeout);
    return true;
}

bool channel_lifecycle::close_link(nanoseconds at) noexcept {
    if (at >= release_by_) path().peer_left();
    const bool overdue = at - release_by_ > std::max(request_.options.close_timeout, recall_patience);
    return path().close() || overdue;
}

void channel_lifecycle::end_session() noexcept {
    state_ = ending_ ? state::closed : state::lost;
    close_session(request_, connection_.session);
    if (reconnector_ && !ending_) reconnector_->start();
}

void channel_lifecycle::renew(bool kept) noexcept {
    try {
        if (kept) retired_.reserve(retired_.size() + 1);
    } catch (const std::bad_alloc&) {
        return;  // the new connection waits
    }
    if (kept) retired_.push_back({epoch_, std::move(connection_)});
    try {
        adopt(reconnector_->take());
    } catch (const std::bad_alloc&) {
        end_session();  // another one is made
    }
}

channel_event channel_lifecycle::take_event() noexcept {
    if (inherited() || ending_) return channel_event::none;
    if (told_epoch_ != 0) {
        if (has_link() && told_epoch_ == epoch_) return channel_event::none;
        told_epoch_ = 0;
        return channel_event::lost;
    }
    if (!has_link()) return channel_event::none;
    told_epoch_ = epoch_;
    return channel_event::reconnected;
}

void channel_lifecycle::consumed(std::uint32_t slot, std::uint32_t epoch) noexcept {
    if (epoch == epoch_) return path().consumed(slot);
    const auto found = std::ranges::find(retired_, epoch, &retired::epoch);
    if (found != retired_.end()) found->held.path->consumed(slot);
}

void channel_lifecycle::forget(std::uint32_t epoch) noexcept {
    std::erase_if(retired_, [epoch](const retired& each) { return each.epoch == epoch; });
}

void channel_lifecycle::end() noexcept {
    loss_ = status::closed;
    reconnector_.reset();
    state_ = state::closed;
}

void channel_lifecycle::sleep(nanoseconds until, int copies) noexcept {
    if (leaving()) watch().heard();
    if (state_ == state::losing) until = std::min(until, now() + losing_interval);
    if (in_doubt()) {
        pollfd told{watch().event_fd(), POLLIN, 0};
        return sleep_on({&told, 1}, until);
    }
    if (!has_link()) {
        std::array<pollfd, 2> fds{{{reconnector_ ? reconnector_->event_fd() : -1, POLLIN, 0}, {copies, POLLIN, 0}}};
        return sleep_on(fds, until);
    }
    if (copies >= 0) {
        pollfd all{wakeups_.fd(), POLLIN, 0};
        sleep_on({&all, 1}, until);
    } else {
        (void)events().doze(watch().event_fd(), until);
    }
    events().disarm();
}

bool channel_lifecycle::arm() noexcept {
    if (!has_link()) return state_ != state::losing;
    if (leaving()) watch().heard();
    events().disarm();
    const bool told = leaving() ? watch().ended() != status::ok : !watch().good();
    return !told && events().arm();
}

}  // namespace accel::core
