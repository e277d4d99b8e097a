// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/client.hpp"
#include "backends/zmq/server.hpp"
#include "core/event_signal.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

/// The data path, in the order a call travels: client sends, server receives, server sends, client receives.
namespace accel::zmq {
namespace {

/// A busy poller checks its connection once in so many polls.
constexpr std::uint32_t polls_between_checks = 1'024;

/// Waits on the descriptors themselves: an epoll around them would cost a microsecond for each sleep.
class sleeper {
  public:
    void add(int fd) noexcept { fds_[count_++] = {fd, POLLIN, 0}; }
    /// True: the first one is readable.
    [[nodiscard]] bool sleep(core::nanoseconds until) noexcept {
        core::sleep_on({fds_.data(), count_}, until);
        return (fds_[0].revents & POLLIN) != 0;
    }

  private:
    std::array<pollfd, 4> fds_{};
    std::size_t count_ = 0;
};

/// Enough time for a receive asleep.
bool is_long(core::nanoseconds until) noexcept {
    constexpr core::nanoseconds enough = 2 * std::chrono::milliseconds{received_asleep_ms};
    return until == core::never || until - core::now() > enough;
}

/// A client that takes no answer for so long is lost.
constexpr core::nanoseconds longest_wait = std::chrono::seconds{10};

/// Sending may consume the signal of a descriptor on which a thread is about to sleep.
void renew_notice(owned_socket& socket, release_list& list) noexcept {
    if (list.armed() && (socket.events() & ZMQ_POLLIN) != 0) list.wake();
}

}  // namespace

status client_link::deliver(const core::outgoing& message) noexcept {
    if (ended_ || gone_) return status::peer_lost;
    if (!can_send(*frames_, message)) return status::again;
    request& sent = requests_[message.slot];
    sent.response_into = message.response_into;
    std::memcpy(&sent.generation, config_.send->header(message.slot) + offsetof(core::slot_header, generation),
                sizeof sent.generation);
    // Only the slots bound the queue, so ZeroMQ refuses only without a connection.
    dry_ = false;
    gone_ = !send_message(socket_.get(), *frames_, *config_.send, message, false);
    if (gone_) return status::peer_lost;
    ++owed_;
    renew_notice(socket_, *hub_->returned);
    return status::ok;
}

std::size_t server_poller::poll(std::span<core::link_event> out) noexcept {
    hub_->merge_activated();
    if (hub_->returned->armed()) hub_->returned->disarm();
    std::size_t count = take_returned(out);
    message_part identity;
    incoming in;
    const std::size_t before = count;
    // A receive without result costs a system call. While messages come one by one, the next poll receives.
    const bool one = alone_ || has_early_;
    for (std::size_t strangers = 0; count < out.size() && strangers < out.size();) {
        if (one && count > before) break;
        hub_->dry = !receive_identity(identity);
        if (hub_->dry) break;
        server_link* const from = hub_->find(identity);
        if (from == nullptr || !identity.more()) {
            drop_stranger(identity);
            ++strangers;
            continue;
        }
        status verdict = status::ok;
        if (!receive_message(hub_->router.get(), core::message_kind::request, in, verdict)) break;
        if (!from->ended()) from->arrive(in, verdict, out[count++]);
    }
    // Two polls in a row with a message: messages may come in bursts.
    alone_ = hub_->dry;
    return count;
}

bool server_poller::receive_identity(message_part& identity) noexcept {
    if (!std::exchange(has_early_, false)) return identity.receive(hub_->router.get());
    identity.take_from(early_);
    return true;
}

std::size_t server_poller::take_returned(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    while (count < out.size()) {
        lent_payload* const each = hub_->returned->next();
        if (each == nullptr) break;
        if (!each->owner->forgotten())
            out[count++] = core::buffer_released_event(static_cast<server_link*>(each->link)->owner(), each->slot);
        in_flight::settle(*each);
    }
    return count;
}

void server_link::arrive(incoming& in, status verdict, core::link_event& out) noexcept {
    std::span<std::byte> payload;
    if (verdict == status::ok) verdict = arrivals_.place(in, payload);
    if (verdict != status::ok) {
        ended_ = true;
        out = core::lost_event(config_.owner, verdict);
        return;
    }
    out = {};
    out.owner = config_.owner;
    out.header = in.header;
    out.payload = payload;
}

status server_link::deliver(const core::outgoing& message) noexcept {
    if (ended_ || !hub_->router) return status::peer_lost;
    if (!can_send(*frames_, message)) [[unlikely]]
        return wait_for_room();
    waits_since_ = {};
    void* const router = hub_->router.get();
    hub_->dry = false;
    if (zmq_send(router, &identity_, sizeof identity_, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0)
        return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? status::again : status::peer_lost;
    if (!send_message(router, *frames_, *config_.send, message, true)) {
        // Ends the message, so that the next one is not taken for its rest.
        zmq_send(router, nullptr, 0, ZMQ_DONTWAIT);
        return status::peer_lost;
    }
    renew_notice(hub_->router, *hub_->returned);
    return status::ok;
}

/// ZeroMQ still holds the slot's last answer, so the client has not read it. A correct client reads the
/// answer before it uses the slot again.
[[gnu::noinline]] status server_link::wait_for_room() noexcept {
    const core::nanoseconds at = core::now();
    if (waits_since_ == core::nanoseconds{}) waits_since_ = at;
    return at - waits_since_ > longest_wait ? status::peer_lost : status::again;
}

std::size_t client_poller::poll(std::span<core::link_event> out) noexcept {
    if (hub_->returned->armed()) disarm();
    std::size_t count = take_returned(out);
    const std::size_t links = hub_->active.size();
    const std::size_t share = links > 1 ? std::max<std::size_t>(1, (out.size() - count) / links) : out.size();
    for (std::size_t i = 0; i < links; ++i) {
        client_link& from = *hub_->active[(first_link_ + i) % links];
        const std::size_t end = std::min(out.size(), count + share);
        while (count < end && from.receive(out[count])) {
            ++count;
            if (from.answered()) break;
        }
    }
    ++first_link_;
    if (count > 0)
        woken_ = false;
    else if (std::exchange(woken_, false) || ++empty_polls_ % polls_between_checks == 0)
        for (client_link* each : hub_->active) each->check_connection();
    return count;
}

std::size_t client_poller::take_returned(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    while (count < out.size()) {
        lent_payload* const each = hub_->returned->next();
        if (each == nullptr) break;
        const bool told =
            !each->owner->forgotten() && static_cast<client_link*>(each->link)->on_returned(*each, out[count]);
        count += told ? 1 : 0;
        in_flight::settle(*each);
    }
    return count;
}

bool client_link::on_returned(const lent_payload& returned, core::link_event& out) noexcept {
    if (ended_) return false;
    const auto waits = std::find_if(deferred_.begin(), deferred_.end(), [&](const core::link_event& response) {
        return response.header.slot == returned.slot;
    });
    if (waits == deferred_.end()) {
        out = core::buffer_released_event(config_.owner, returned.slot);
        return true;
    }
    out = *waits;
    deferred_.erase(waits);
    return true;
}

bool client_link::receive(core::link_event& out) noexcept {
    incoming in;
    while (!ended_) {
        status verdict = status::ok;
        if (std::exchange(has_early_, false)) {
            in.body.take_from(early_);
            receive_rest_of_message(socket_.get(), core::message_kind::response, in, verdict);
            dry_ = false;
        } else {
            dry_ = !receive_message(socket_.get(), core::message_kind::response, in, verdict);
        }
        if (dry_) return gone_ && lose(status::peer_lost, out);
        if (verdict != status::ok) return lose(verdict, out);
        if (arrive(in, out)) return true;
    }
    return false;
}

bool client_link::arrive(incoming& in, core::link_event& out) noexcept {
    const core::slot_header& header = in.header;
    if (header.slot >= requests_.size()) return lose(status::protocol_error, out);
    request& asked = requests_[header.slot];
    const bool answers = header.generation == asked.generation;
    const std::span<std::byte> target = answers ? asked.response_into.bytes() : std::span<std::byte>{};
    const bool directed = !target.empty() && header.code == status::ok && header.length <= target.size();
    std::span<std::byte> payload;
    const status placed = directed ? arrivals_.place_in(target, in, payload) : arrivals_.place(in, payload);
    if (placed != status::ok) return lose(placed, out);
    if (answers) asked.response_into = {};
    if (owed_ > 0) --owed_;

    out = {};
    out.owner = config_.owner;
    out.header = header;
    out.payload = payload;
    if (frames_->want(header.slot)) return true;
    // The answer came before ZeroMQ released the request, so the request's memory cannot be given back yet.
    deferred_.push_back(out);  // within reserved capacity
    return false;
}

bool client_link::retract(std::uint32_t slot) noexcept {
    requests_[slot].response_into = {};
    return frames_->want(slot);
}

bool client_link::lose(status why, core::link_event& out) noexcept {
    ended_ = true;
    out = core::lost_event(config_.owner, why);
    return true;
}

bool client_link::quiet() noexcept {
    if (ended_) return true;
    return !gone_ && !has_early_ && (dry_ || (socket_.events() & ZMQ_POLLIN) == 0);
}

bool client_link::receive_asleep() noexcept {
    has_early_ = has_early_ || early_.wait(socket_.get());
    return has_early_;
}

void client_link::check_connection() noexcept {
    while (const auto event = monitor_.next())
        gone_ = gone_ || (event->what & (ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED)) != 0;
}

bool client_poller::arm() noexcept {
    hub_->returned->arm();
    // If nobody sleeps on the descriptor, `sleep` comes next and looks itself.
    const bool looks = hub_->watched();
    const bool quiet = hub_->hears() && hub_->returned->empty() &&
                       std::all_of(hub_->active.begin(), hub_->active.end(),
                                   [looks](client_link* each) { return looks ? each->quiet() : !each->gone(); });
    if (!quiet) hub_->returned->disarm();
    return quiet;
}

bool server_poller::arm() noexcept {
    hub_->returned->arm();
    // If nobody sleeps on the descriptor, `sleep` comes next and looks itself.
    const bool quiet = hub_->hears() && hub_->returned->empty() && !has_early_ && (!hub_->watched() || this->quiet());
    if (!quiet) hub_->returned->disarm();
    return quiet;
}

bool server_poller::quiet() noexcept {
    return hub_->dry || (hub_->router.events() & ZMQ_POLLIN) == 0;
}

bool client_poller::doze(int other_fd, core::nanoseconds until) noexcept {
    if (!may_receive_asleep(until)) return sleep(other_fd, until);
    vain_ = !hub_->active.front()->receive_asleep();
    return false;
}

bool client_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    vain_ = false;
    if (hub_->active.size() != 1) {
        static_cast<void>(hub_->event_fd());
        return arm() && poller::sleep(other_fd, until);
    }
    client_link& only = *hub_->active.front();
    if (!only.quiet()) return false;
    sleeper waiting;
    waiting.add(other_fd);
    waiting.add(only.fd());
    waiting.add(only.monitor_fd());
    if (hub_->returned->expected() > 0) waiting.add(hub_->returned->fd());
    return waiting.sleep(until);
}

/// `other_fd` cannot wake a blocking receive, so it is short. After one without result the thread sleeps on
/// the descriptors.
bool client_poller::may_receive_asleep(core::nanoseconds until) const noexcept {
    return !vain_ && hub_->active.size() == 1 && hub_->returned->expected() == 0 && is_long(until);
}

/// Until a message of any session comes.
bool server_poller::doze(int other_fd, core::nanoseconds until) noexcept {
    if (!may_receive_asleep(until)) return sleep(other_fd, until);
    has_early_ = early_.wait(hub_->router.get());
    vain_ = !has_early_;
    return false;
}

bool server_poller::may_receive_asleep(core::nanoseconds until) const noexcept {
    return !vain_ && hub_->returned->expected() == 0 && is_long(until);
}

bool server_poller::sleep(int other_fd, core::nanoseconds until) noexcept {
    vain_ = false;
    if (!quiet()) return false;
    sleeper waiting;
    waiting.add(other_fd);
    waiting.add(hub_->router_fd);
    if (hub_->returned->expected() > 0) waiting.add(hub_->returned->fd());
    return waiting.sleep(until);
}

}  // namespace accel::zmq
