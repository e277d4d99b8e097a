// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/link.hpp"
#include "backends/tcp/poller.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/socket.h>

/// Sending, then receiving. Nothing here allocates, locks or logs.
namespace accel::tcp {

using core::link_event;
using core::slot_header;

namespace {

constexpr std::size_t batch_bytes = 1 << 20;
/// The most that one link moves in one poll, so that other links are served. A read costs as much as copying some
/// bytes, however few it brings: the records of a peer may hold one byte each.
constexpr std::size_t read_budget = 1 << 20;
constexpr std::size_t read_cost = 4 << 10;
constexpr int sends_at_once = 4;

/// One system call: `send` for one piece, because it costs less than `sendmsg`.
ssize_t hand_over(int fd, const send_batch& batch, int flags) noexcept {
    if (batch.count == 1) return ::send(fd, batch.pieces[0].iov_base, batch.pieces[0].iov_len, flags);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(batch.pieces.data());
    message.msg_iovlen = batch.count;
    return ::sendmsg(fd, &message, flags);
}

bool would_block(int number) noexcept {
    return number == EAGAIN || number == EWOULDBLOCK;
}

}  // namespace

status tcp_link::deliver(const core::outgoing& message) noexcept {
    if (state_ != state::open) return status::peer_lost;
    const std::uint32_t slot = message.slot;
    if (slot >= config_.geometry.slots || queue_.busy(slot)) return status::invalid_state;
    const std::size_t length = message.length();
    if (length > config_.send->capacity()) return status::message_too_large;
    const bool lent = message.region != nullptr;
    const bool pinned = zerocopy_.useful() && length >= zerocopy_ledger::min_bytes &&
                        length >= message.ranges.size() * zerocopy_ledger::min_range_bytes;
    if (is_server()) {
        loans_[slot].owed = lent;
    } else {
        const slot_header header = core::read_header(config_.send->header(slot));
        if (message.response_ranges.empty()) [[likely]]
            reader_.expect(slot, header.generation, message.response_into.bytes());
        else
            reader_.expect_scattered(slot, header.generation, message.response_ranges, message.response_bytes);
        loans_[slot].owed = false;
    }
    const bool first = all_sent();
    if (message.ranges.empty())
        queue_.push(slot, config_.send->header(slot), message.payload, lent, pinned);
    else
        queue_.push_gathered(slot, config_.send->header(slot), message.ranges, length, pinned);
    if (first) flush();
    return status::ok;
}

/// Sends until the OS takes no more, or this link's share is used up.
void tcp_link::flush() noexcept {
    for (int i = 0; i < sends_at_once && !all_sent(); ++i)
        if (!send_once()) break;
    if (!all_sent() && !blocked()) poller_.make_hot(*this);
}

/// Sends one batch. False: no more for now.
bool tcp_link::send_once() noexcept {
    if (encrypts()) return send_records();
    send_batch batch;
    queue_.plan(batch, batch_bytes);
    bool pinned = batch.pinned && !zerocopy_.full();
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (batch.more ? MSG_MORE : 0) | (pinned ? MSG_ZEROCOPY : 0);
    ssize_t sent = hand_over(fd_.get(), batch, flags);
    if (sent < 0 && errno == ENOBUFS && pinned) {
        // The OS pins no more for now.
        pinned = false;
        sent = hand_over(fd_.get(), batch, flags & ~MSG_ZEROCOPY);
    }
    if (sent > 0) {
        if (pinned) zerocopy_.sent(queue_.front());
        book_sent(static_cast<std::size_t>(sent));
        return true;
    }
    if (would_block(errno) || errno == ENOBUFS)
        stop_sending();
    else if (errno != EINTR)
        send_failed();
    return false;
}

/// The same through TLS. Encrypted bytes count as sent: nothing reads their source any more.
bool tcp_link::send_records() noexcept {
    send_batch batch;
    if (!queue_.empty()) queue_.plan(batch, batch_bytes);
    std::size_t taken = 0;
    const tls_bytes::write_outcome outcome = tls_->write(batch, taken);
    book_sent(taken);
    if (outcome == tls_bytes::write_outcome::blocked)
        stop_sending();
    else if (outcome == tls_bytes::write_outcome::failed)
        send_failed();
    return outcome == tls_bytes::write_outcome::done;
}

/// Stops until the OS takes more.
void tcp_link::stop_sending() noexcept {
    if (output_ == output::open) output_ = output::blocked;
    poller_.output_changed(*this);
}

/// The link still reads what the peer sent before it went. The read that finds the end reports the loss.
void tcp_link::send_failed() noexcept {
    forget_output();
    if (output_ != output::unwanted) output_ = output::failed;
    more_to_read_ = true;
    poller_.make_hot(*this);
}

void tcp_link::forget_output() noexcept {
    queue_.clear();
    if (tls_ != nullptr) tls_->forget_output();
}

void tcp_link::book_sent(std::size_t count) noexcept {
    for (;;) {
        const std::uint32_t slot = queue_.book(count);
        if (slot == none) return;
        settle_loan(slot);
    }
}

/// Reports lent memory of this slot as released once neither the queue nor the OS reads it.
void tcp_link::settle_loan(std::uint32_t slot) noexcept {
    if (loans_[slot].owed && !queue_.lends(slot) && !zerocopy_.pending(slot)) {
        loans_[slot].owed = false;
        push_released(slot);
    }
}

void tcp_link::push_released(std::uint32_t slot) noexcept {
    loans_[slot].next = none;
    if (first_released_ == none)
        first_released_ = slot;
    else
        loans_[last_released_].next = slot;
    last_released_ = slot;
    poller_.make_hot(*this);
}

void tcp_link::reap_zerocopy() noexcept {
    std::uint32_t id = 0;
    std::uint32_t last = 0;
    while (zerocopy_.pending() && zerocopy_.read(fd_.get(), id, last)) {
        for (; static_cast<std::int32_t>(last - id) >= 0; ++id) {
            const std::uint32_t slot = zerocopy_.take(id);
            if (slot != zerocopy_ledger::none) settle_loan(slot);
        }
    }
}

bool tcp_link::retract(std::uint32_t slot) noexcept {
    if (slot >= config_.geometry.slots || state_ != state::open) return !zerocopy_.pending();
    queue_.unlend(slot, config_.send->payload(slot));
    reader_.redirect(slot);
    reap_zerocopy();
    if (!zerocopy_.pending(slot)) return true;
    loans_[slot].owed = true;
    return false;
}

std::size_t tcp_link::progress(std::span<link_event> out) noexcept {
    std::size_t count = 0;
    if (state_ == state::open) {
        if (!all_sent() && !blocked()) flush();
        if (zerocopy_.pending()) reap_zerocopy();
        count = take_released(out);
        if (out.size() - count >= 2) count += receive(out.subspan(count));
    }
    if (blocked() != watches_output) poller_.output_changed(*this);
    if (state_ == state::losing && count < out.size()) {
        state_ = state::lost;
        first_released_ = none;
        more_to_read_ = false;
        out[count++] = core::lost_event(config_.owner, reason_);
    }
    return count;
}

std::size_t tcp_link::take_released(std::span<link_event> out) noexcept {
    std::size_t count = 0;
    while (first_released_ != none && count < out.size()) {
        const std::uint32_t slot = first_released_;
        first_released_ = loans_[slot].next;
        out[count++] = core::buffer_released_event(config_.owner, slot);
    }
    return count;
}

/// Reads until the socket is empty, `out` is full or this link's share is used up.
std::size_t tcp_link::receive(std::span<link_event> out) noexcept {
    std::size_t count = take_arrivals(out);
    if (input_ == input::ahead || input_ == input::empty) {
        input_ = input_ == input::ahead ? input::empty : input::unknown;
        more_to_read_ = out.size() - count < 2;
        return count;
    }
    std::size_t budget = read_budget;
    more_to_read_ = true;
    while (state_ == state::open && out.size() - count >= 2 && budget > 0) {
        std::size_t got = 0;
        const read_outcome outcome = read_once(got, MSG_DONTWAIT);
        if (outcome == read_outcome::nothing || outcome == read_outcome::failed) {
            more_to_read_ = false;
            if (output_ == output::failed) fail(status::peer_lost);
            break;
        }
        budget -= std::min(budget, got + read_cost);
        reader_.received(got);
        count += take_arrivals(out.subspan(count));
        if (outcome == read_outcome::some && out.size() - count >= 2) {
            more_to_read_ = false;
            break;
        }
    }
    return count;
}

/// A read that may sleep, up to the socket's time limit. True: there is something to do.
bool tcp_link::read_asleep() noexcept {
    after_sleep();
    std::size_t got = 0;
    const read_outcome outcome = read_once(got, 0);
    if (outcome == read_outcome::all || outcome == read_outcome::some) {
        reader_.received(got);
        more_to_read_ = true;
        if (outcome == read_outcome::some) input_ = input::ahead;
    }
    return outcome != read_outcome::nothing;
}

/// One system call for the rest of a payload and what follows it.
tcp_link::read_outcome tcp_link::read_once(std::size_t& count, int flags) noexcept {
    if (tls_ != nullptr) return read_record(count, (flags & MSG_DONTWAIT) == 0);
    read_targets into;
    reader_.targets(into);
    ssize_t got = 0;
    if (into.count == 1) {
        got = ::recv(fd_.get(), into.pieces[0].iov_base, into.pieces[0].iov_len, flags);
    } else {
        msghdr message{};
        message.msg_iov = into.pieces.data();
        message.msg_iovlen = into.count;
        got = ::recvmsg(fd_.get(), &message, flags);
    }
    if (got > 0) {
        count = static_cast<std::size_t>(got);
        const bool all = count == into.bytes;
        if (!all) input_ = input_ == input::woken ? input::empty : input::unknown;
        return all ? read_outcome::all : read_outcome::some;
    }
    if (got < 0 && (would_block(errno) || errno == EINTR)) {
        input_ = input::unknown;
        return read_outcome::nothing;
    }
    fail(status::peer_lost);
    return read_outcome::failed;
}

/// The same through TLS: what OpenSSL holds already, or one system call.
tcp_link::read_outcome tcp_link::read_record(std::size_t& count, bool may_sleep) noexcept {
    read_targets next;
    reader_.targets(next, 1);
    const std::span into(static_cast<std::byte*>(next.pieces[0].iov_base), next.pieces[0].iov_len);
    const bool slept = input_ == input::woken;
    switch (tls_->read(into, count, may_sleep)) {
        case tls_bytes::read_outcome::some:
            return read_outcome::all;
        case tls_bytes::read_outcome::last:
            input_ = slept ? input::empty : input::unknown;
            return read_outcome::some;
        case tls_bytes::read_outcome::nothing:
            input_ = input::unknown;
            return read_outcome::nothing;
        case tls_bytes::read_outcome::ended:
            break;
    }
    fail(status::peer_lost);
    return read_outcome::failed;
}

/// Turns what was read into events.
std::size_t tcp_link::take_arrivals(std::span<link_event> out) noexcept {
    std::size_t count = 0;
    while (out.size() - count >= 2) {
        arrival message;
        const stream_reader::outcome outcome = reader_.next(message);
        if (outcome == stream_reader::outcome::nothing) break;
        if (outcome == stream_reader::outcome::goodbye) {
            fail(status::closed);
            break;
        }
        const std::uint32_t slot = message.header.slot;
        // The peer breaks the protocol if it answers or asks again before it has the whole last message.
        if (outcome == stream_reader::outcome::violation || queue_.busy(slot)) {
            fail(status::protocol_error);
            break;
        }
        if (loans_[slot].owed) {
            // The peer has all of the last message, so nobody needs its memory any more.
            loans_[slot].owed = false;
            if (is_server()) out[count++] = core::buffer_released_event(config_.owner, slot);
        }
        link_event& event = out[count++];
        event = {};
        event.owner = config_.owner;
        event.header = message.header;
        event.payload = message.payload;
    }
    return count;
}

void tcp_link::consumed(std::uint32_t slot) noexcept {
    if (slot < config_.geometry.slots) reader_.consumed(slot);
}

}  // namespace accel::tcp
