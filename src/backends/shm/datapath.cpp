// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/link.hpp"
#include "backends/shm/poller.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>

/// The data path of `shm`: a slot, an entry in a lane, and a byte on the socket if the peer sleeps. Whatever the peer
/// writes is read once and checked.
namespace accel::shm {
namespace {

/// How often a byte is sent for which the OS has no memory.
constexpr int wake_attempts = 16;

}  // namespace

using core::link_event;

// Sending.

status shm_link::deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    if (state_ != state::open) [[unlikely]]
        return deliver_plain_by_gpu(slot, payload);
    // A response was written in place.
    if (!is_server()) put_request(slot, payload);
    announce(slot);
    return status::ok;
}

inline void shm_link::put_request(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    std::memcpy(outgoing_.slots->header(slot), config_.send->header(slot), core::header_bytes);
    if (!payload.empty()) std::memcpy(outgoing_.slots->payload(slot), payload.data(), payload.size());
}

void shm_link::put_extensions(std::uint32_t slot, std::size_t bytes) noexcept {
    if (bytes > 0) std::memcpy(outgoing_.slots->header(slot) - bytes, config_.send->header(slot) - bytes, bytes);
}

status shm_link::deliver(const core::outgoing& message) noexcept {
    if (state_ != state::open) [[unlikely]]
        return deliver_by_gpu(message);
    if (!fits(message)) return status::message_too_large;
    if (is_server()) return deliver_lent_response(message);
    const core::slot_header header = core::read_header(config_.send->header(message.slot));
    targets_[message.slot] = {message.response_into.bytes(), header.generation};
    put_extensions(message.slot, message.extension_bytes);
    if (!message.ranges.empty()) {
        std::memcpy(outgoing_.slots->header(message.slot), config_.send->header(message.slot), core::header_bytes);
        core::range_cursor{}.copy_out(message.ranges, outgoing_.slots->payload(message.slot), message.range_bytes);
        announce(message.slot);
        return status::ok;
    }
    return deliver_plain(message.slot, message.payload);
}

/// The event that the memory is free is due at once.
status shm_link::deliver_lent_response(const core::outgoing& message) noexcept {
    std::byte* const to = outgoing_.slots->payload(message.slot);
    const bool in_place = message.payload.data() == to;  // only described
    if (!message.payload.empty() && !in_place) std::memcpy(to, message.payload.data(), message.payload.size());
    if (message.region != nullptr) released_.push_back(message.slot);  // within reserved capacity
    announce(message.slot);
    return status::ok;
}

/// A full socket wakes the peer as well. So does the end of the session, where the OS has no memory for a byte.
[[gnu::noinline]] void shm_link::wake(std::uint32_t sleep) noexcept {
    constexpr std::byte any{1};
    woken_ = sleep;
    for (int left = wake_attempts; left > 0; --left) {
        if (::send(socket_.get(), &any, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1) return;
        if (errno != EINTR && errno != ENOMEM && errno != ENOBUFS) return;
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
}

bool shm_link::retract(std::uint32_t slot) noexcept {
    targets_[slot].room = {};
    return copies_ == nullptr || !copies_->abandon(slot);
}

// Receiving.

std::size_t shm_link::take(std::span<link_event> out) noexcept {
    const bool plain = state_ == state::open && released_.empty();
    return plain ? take_messages(out) : take_more(out);
}

inline std::size_t shm_link::take_messages(std::span<link_event> out) noexcept {
    std::size_t count = 0;
    for (std::uint32_t slot = 0; count < out.size() && reader_.take(slot); ++count) {
        if (fill(out[count], slot)) [[likely]]
            continue;
        lose(status::protocol_error);
        break;
    }
    return count;
}

/// False: no correct peer sends it.
inline bool shm_link::fill(link_event& event, std::uint32_t slot) noexcept {
    if (!read_message(event, slot)) [[unlikely]]
        return false;
    if (is_server()) return true;
    if (event.header.extension_bytes > 0 && !keep_extensions(event.header)) [[unlikely]]
        return false;
    return targets_[slot].room.empty() || place(event, targets_[slot]);
}

/// Client: a response's extensions are read in the channel's own slot. False: no correct peer sends so many.
[[gnu::noinline]] bool shm_link::keep_extensions(const core::slot_header& header) noexcept {
    const std::size_t bytes = header.extension_bytes;
    if (bytes > core::extension_room) return false;
    std::byte* const kept = config_.receive->header(header.slot);
    std::memcpy(kept, &header, sizeof header);
    std::memcpy(kept - bytes, incoming_.slots->header(header.slot) - bytes, bytes);
    return true;
}

/// Copies a response to where its call wants it. A late one stays in its slot, and is dropped.
[[gnu::noinline]] bool shm_link::place(link_event& event, target& wanted) const noexcept {
    if (event.header.generation != wanted.generation) return true;
    if (event.payload.size() > wanted.room.size()) return false;
    if (!event.payload.empty()) std::memcpy(wanted.room.data(), event.payload.data(), event.payload.size());
    event.payload = wanted.room.first(event.payload.size());
    event.borrowed = false;
    wanted = {};
    return true;
}

[[gnu::noinline]] std::size_t shm_link::take_more(std::span<link_event> out) noexcept {
    std::size_t count = 0;
    for (; count < out.size() && !released_.empty(); ++count) {
        out[count] = core::buffer_released_event(config_.owner, released_.back());
        released_.pop_back();
    }
    const std::span<link_event> rest = out.subspan(count);
    if (state_ == state::open) return count + take_messages(rest);
    if (state_ == state::open_to_gpu) return count + take_by_gpu(rest);
    if (state_ != state::losing) return count;
    return count + (copies_ == nullptr ? take_last(rest) : take_last_by_gpu(rest));
}

/// The messages that the server sent before it went, then the loss. It may write on: no more is taken than a lane
/// holds.
std::size_t shm_link::take_last(std::span<link_event> out) noexcept {
    std::size_t count = 0;
    std::uint32_t slot = 0;
    while (count < out.size() && last_left_ > 0 && reader_.take(slot) && fill(out[count], slot)) {
        ++count;
        --last_left_;
    }
    return count == out.size() ? count : tell_loss(out, count);
}

std::size_t shm_link::tell_loss(std::span<link_event> out, std::size_t count) noexcept {
    state_ = state::lost;
    out[count] = core::lost_event(config_.owner, reason_);
    return count + 1;
}

bool shm_link::has_work() const noexcept {
    if (state_ != state::open) [[unlikely]]
        return has_other_work();
    return !released_.empty() || !reader_.empty();
}

void shm_link::hear() noexcept {
    std::array<std::byte, 256> ignored;
    const ssize_t got = ::recv(socket_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
    const bool alive = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    if (alive) return;
    const bool left = is_server() && incoming_.head().closed.load(std::memory_order_acquire) == 1;
    lose(left ? status::closed : status::peer_lost);
}

}  // namespace accel::shm
