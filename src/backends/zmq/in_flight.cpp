// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/in_flight.hpp"

#include <utility>

namespace accel::zmq {

void release_list::push(lent_payload& returned) noexcept {
    lent_payload* head = head_.load(std::memory_order_relaxed);
    do {
        returned.next = head;
    } while (!head_.compare_exchange_weak(head, &returned, std::memory_order_seq_cst, std::memory_order_relaxed));
    if (armed_.load(std::memory_order_seq_cst) && armed_.exchange(false, std::memory_order_seq_cst)) wake();
    if (closed_.load(std::memory_order_seq_cst)) settle_all();
}

void release_list::close() noexcept {
    closed_.store(true, std::memory_order_seq_cst);
    while (lent_payload* each = next()) in_flight::settle(*each);
}

void release_list::settle_all() noexcept {
    lent_payload* each = head_.exchange(nullptr, std::memory_order_seq_cst);
    while (each != nullptr) in_flight::settle(*std::exchange(each, each->next));
}

lent_payload* release_list::next() noexcept {
    if (waiting_ == nullptr && head_.load(std::memory_order_relaxed) != nullptr)
        waiting_ = head_.exchange(nullptr, std::memory_order_acquire);
    if (waiting_ == nullptr) return nullptr;
    --expected_;
    return std::exchange(waiting_, waiting_->next);
}

void release_list::settle_forgotten() noexcept {
    lent_payload* kept = nullptr;
    while (lent_payload* each = next()) {
        if (each->owner->forgotten()) {
            in_flight::settle(*each);
        } else {
            each->next = std::exchange(kept, each);
            ++expected_;
        }
    }
    waiting_ = kept;
}

void release_list::disarm() noexcept {
    armed_.store(false, std::memory_order_relaxed);
    if (!signalled_.load(std::memory_order_acquire)) return;
    signalled_.store(false, std::memory_order_relaxed);
    signal_.clear();
}

void release_list::wake() noexcept {
    signal_.set();
    // After the write: the reader that sees it may also take the count.
    signalled_.store(true, std::memory_order_release);
}

in_flight::in_flight(std::uint32_t slots, std::shared_ptr<core::slot_memory> memory, std::shared_ptr<release_list> list,
                     void* link)
    : memory_(std::move(memory)), list_(std::move(list)), lent_(slots) {
    for (std::uint32_t i = 0; i < slots; ++i) {
        lent_[i].slot = i;
        lent_[i].owner = this;
        lent_[i].link = link;
    }
}

in_flight::owner in_flight::make(std::uint32_t slots, std::shared_ptr<core::slot_memory> memory,
                                 std::shared_ptr<release_list> list, void* link) {
    return owner{new in_flight{slots, std::move(memory), std::move(list), link}};
}

void in_flight::leave() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void in_flight::leave(lent_payload& slot) noexcept {
    in_flight* const owner = slot.owner;
    slot.frames.fetch_sub(1, std::memory_order_release);
    owner->leave();
}

void in_flight::free_slot(void*, void* hint) {
    take_over(hint);
    leave(*static_cast<lent_payload*>(hint));
}

void in_flight::free_lent(void*, void* hint) {
    take_over(hint);
    auto& payload = *static_cast<lent_payload*>(hint);
    auto was = lent_payload::state::held;
    if (payload.now.compare_exchange_strong(was, lent_payload::state::idle, std::memory_order_acq_rel)) {
        leave(payload);
        return;
    }
    // From here on the list and its reader hold the payload. This link may be gone afterwards.
    const std::shared_ptr<release_list> list = payload.owner->list_;
    payload.frames.fetch_sub(1, std::memory_order_release);
    payload.now.store(lent_payload::state::queued, std::memory_order_release);
    list->push(payload);
}

void in_flight::settle(lent_payload& returned) noexcept {
    returned.now.store(lent_payload::state::idle, std::memory_order_relaxed);
    returned.owner->leave();
}

bool in_flight::want(std::uint32_t slot) noexcept {
    lent_payload& payload = lent_[slot];
    auto was = lent_payload::state::held;
    if (payload.now.load(std::memory_order_acquire) == lent_payload::state::idle) return true;
    if (payload.now.compare_exchange_strong(was, lent_payload::state::wanted, std::memory_order_acq_rel)) {
        list_->expect();
        return false;
    }
    return was == lent_payload::state::idle;
}

void in_flight::forget() noexcept {
    forgotten_ = true;
}

}  // namespace accel::zmq
