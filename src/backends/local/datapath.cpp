// SPDX-License-Identifier: Apache-2.0
#include "backends/local/link.hpp"

#include <algorithm>

/// The data path of `local`: a queue entry each way; payloads stay where they were written.
namespace accel::local {

using core::link_role;

status local_link::deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept {
    if (peer_->closed.load(std::memory_order_relaxed)) [[unlikely]]
        return status::peer_lost;
    put(slot, payload, false, {});
    return status::ok;
}

status local_link::deliver(const core::outgoing& message) noexcept {
    if (peer_->closed.load(std::memory_order_relaxed)) return status::peer_lost;
    const bool lent = message.region != nullptr || !message.response_into.empty();
    if (lent) lend(message.slot);
    put(message.slot, message.payload, lent, message.response_into.bytes());
    return status::ok;
}

inline void local_link::put(std::uint32_t slot, std::span<const std::byte> payload, bool lent,
                            std::span<std::byte> response_room) noexcept {
    side& peer = *peer_;
    peer.inbox.push(event_kind::arrived, lent, slot, {const_cast<std::byte*>(payload.data()), payload.size()},
                    response_room);
    peer.owner->notify();
}

/// Before delivery: until the peer says that it is done, it may touch memory of this end's application.
void local_link::lend(std::uint32_t slot) noexcept {
    mine_->lent_slots[slot].store(true, std::memory_order_relaxed);
    mine_->lent.fetch_add(1, std::memory_order_relaxed);
}

bool local_link::retract(std::uint32_t slot) noexcept {
    return !mine_->lent_slots[slot].load(std::memory_order_acquire);
}

/// A server is done with a request when it answers, a client with an answer when it releases it.
void local_link::consumed(std::uint32_t slot) noexcept {
    if (peer_->lent_slots[slot].load(std::memory_order_relaxed)) [[unlikely]]
        release_peer_memory(slot);
}

[[gnu::noinline]] void local_link::release_peer_memory(std::uint32_t slot) noexcept {
    peer_->lent_slots[slot].store(false, std::memory_order_seq_cst);
    if (peer_->closed.load(std::memory_order_seq_cst)) {
        peer_->end_left_lease(slot);
    } else if (role_ == link_role::client) {
        peer_->inbox.push(event_kind::buffer_released, false, slot, {}, {});
        peer_->owner->notify();
    }
    peer_->lent.fetch_sub(1, std::memory_order_release);
}

core::slot_memory& local_link::send() const noexcept {
    return *mine_->outgoing;
}

core::slot_memory& local_link::receive() const noexcept {
    return *incoming_slots_;
}

bool local_link::something_to_take() const noexcept {
    return !mine_->inbox.empty() || (!loss_reported_ && peer_->closed.load(std::memory_order_seq_cst));
}

inline void local_link::fill(core::link_event& event, const entry& from) const noexcept {
    event.kind = from.kind;
    event.borrowed = from.lent;
    event.owner = events_owner_;
    event.payload = from.payload;
    event.response_room = from.response_room;
    if (from.kind == event_kind::arrived) [[likely]]
        core::read_header(event.header, incoming_slots_->header(from.slot));
    else
        event.header.slot = from.slot;
}

inline std::size_t local_link::take(std::span<core::link_event> out) noexcept {
    side& mine = *mine_;
    if (peer_->closed.load(std::memory_order_acquire)) [[unlikely]]
        return take_last(out);
    const auto [first, last] = mine.inbox.all();
    const std::uint32_t count = last - first;
    if (count == 0) return 0;
    if (count != 1) return take_several(out);
    fill(out.front(), mine.inbox.at(first));
    mine.inbox.drop_until(last);
    return 1;
}

[[gnu::noinline]] std::size_t local_link::take_several(std::span<core::link_event> out) noexcept {
    ring& inbox = mine_->inbox;
    const auto [first, last] = inbox.all();
    const std::uint32_t count = std::min(last - first, static_cast<std::uint32_t>(out.size()));
    for (std::uint32_t i = 0; i < count; ++i) fill(out[i], inbox.at(first + i));
    inbox.drop_until(first + count);
    return count;
}

/// Takes what a peer sent before it closed. A client still reads answers, lent or not; a server drops requests.
[[gnu::noinline]] std::size_t local_link::take_last(std::span<core::link_event> out) noexcept {
    std::size_t count = 0;
    for (const entry* next = nullptr; count < out.size() && (next = mine_->inbox.front()) != nullptr;) {
        if (role_ == link_role::client)
            fill(out[count++], *next);
        else
            consumed(next->slot);
        mine_->inbox.drop();
    }
    if (!loss_reported_ && count < out.size()) {
        loss_reported_ = true;
        out[count++] = core::lost_event(events_owner_, status::closed);
    }
    return count;
}

std::size_t local_poller::poll(std::span<core::link_event> out) noexcept {
    // A client has one link. This thread stored it, and another one can only take it back.
    local_link* const only = only_.load(std::memory_order_relaxed);
    return only != nullptr ? only->take(out) : poll_all(out);
}

[[gnu::noinline]] std::size_t local_poller::poll_all(std::span<core::link_event> out) noexcept {
    if (added_pending_.load(std::memory_order_acquire)) take_added();
    const std::size_t links = links_.size();
    std::size_t count = 0;
    for (std::size_t looked = 0; looked < links && count < out.size(); ++looked) {
        local_link& each = *links_[next_];
        if (++next_ == links) next_ = 0;
        count += each.take(out.subspan(count));
    }
    return count;
}

}  // namespace accel::local
