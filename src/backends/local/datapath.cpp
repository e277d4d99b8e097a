#include "backends/local/link.hpp"

/// The data path of `local`: a queue entry each way; payloads stay where they were written.
namespace accel::local {

using core::event_kind;
using core::link_role;

status local_link::deliver(const core::outgoing& message) noexcept {
    if (peer_->closed.load(std::memory_order_relaxed)) return status::peer_lost;
    entry made;
    made.slot = message.slot;
    made.payload = {const_cast<std::byte*>(message.payload.data()), message.payload.size()};
    made.response_room = message.response_into.bytes();
    if (message.region != nullptr || !message.response_into.empty()) {
        (*lent_by_me_)[message.slot].store(true, std::memory_order_relaxed);
        mine_->lent.fetch_add(1, std::memory_order_relaxed);
    }
    peer_->inbox.push(made);
    peer_->owner->notify();
    return status::ok;
}

bool local_link::retract(std::uint32_t slot) noexcept {
    return !(*lent_by_me_)[slot].load(std::memory_order_acquire);
}

/// A server is done with a request when it answers, a client with an answer when it releases it.
void local_link::consumed(std::uint32_t slot) noexcept {
    release_peer_memory(slot);
}

void local_link::release_peer_memory(std::uint32_t slot) noexcept {
    if (!(*lent_by_peer_)[slot].load(std::memory_order_relaxed)) return;
    (*lent_by_peer_)[slot].store(false, std::memory_order_release);
    if (role_ == link_role::client && !peer_->closed.load(std::memory_order_relaxed)) {
        peer_->inbox.push({event_kind::let_go, slot, {}, {}});
        peer_->owner->notify();
    }
    peer_->lent.fetch_sub(1, std::memory_order_release);
}

core::slot_memory& local_link::send() const noexcept {
    return *outgoing_slots_;
}

bool local_link::something_to_take() const noexcept {
    if (mine_->closed.load(std::memory_order_relaxed)) return false;
    return !mine_->inbox.empty() || (!loss_told_ && peer_->closed.load(std::memory_order_seq_cst));
}

void local_link::fill(core::link_event& event, const entry& from) const noexcept {
    event.kind = from.kind;
    event.owner = events_owner_;
    event.payload = from.payload;
    event.response_room = from.response_room;
    if (from.kind == event_kind::arrived) {
        event.header = core::read_header(incoming_slots_->header(from.slot));
    } else {
        event.header.slot = from.slot;
    }
}

std::size_t local_link::take(std::span<core::link_event> out) noexcept {
    if (mine_->closed.load(std::memory_order_relaxed)) return 0;
    const bool peer_closed = peer_->closed.load(std::memory_order_acquire);
    std::size_t count = 0;
    for (const entry* next = nullptr; count < out.size() && (next = mine_->inbox.front()) != nullptr;) {
        // What a closed peer lent may be gone; an answer that lies in our own slot is as good as before.
        const bool gone = peer_closed && (role_ == link_role::server ||
                                          (*lent_by_peer_)[next->slot].load(std::memory_order_relaxed));
        if (gone) {
            release_peer_memory(next->slot);
        } else {
            fill(out[count++], *next);
        }
        mine_->inbox.drop();
    }
    if (peer_closed && !loss_told_ && count < out.size()) {
        loss_told_ = true;
        out[count].kind = event_kind::lost;
        out[count].owner = events_owner_;
        out[count].reason = status::closed;
        ++count;
    }
    return count;
}

std::size_t local_poller::poll(std::span<core::link_event> out) noexcept {
    if (added_pending_.load(std::memory_order_acquire)) take_added();
    std::size_t count = 0;
    for (std::size_t looked = 0; looked < links_.size() && count < out.size(); ++looked) {
        if (next_ >= links_.size()) next_ = 0;
        count += links_[next_++]->take(out.subspan(count));
    }
    return count;
}

}  // namespace accel::local
