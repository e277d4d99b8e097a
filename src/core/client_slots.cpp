#include "core/client_slots.hpp"

#include <algorithm>

namespace accel::core {

client_slots::client_slots(std::uint32_t count) : slots_(count), done_(count) {
    free_.reserve(count);
    for (std::uint32_t i = count; i-- > 0;) {
        slots_[i].content.id.slot = i;
        free_.push_back(i);
    }
}

client_slot* client_slots::find(call_id id) noexcept {
    if (id.slot >= slots_.size()) return nullptr;
    client_slot& slot = slots_[id.slot];
    return slot.content.id == id ? &slot : nullptr;
}

client_slot* client_slots::take_free() noexcept {
    if (free_.empty()) return nullptr;
    client_slot& slot = slots_[free_.back()];
    free_.pop_back();
    slot.state = slot_state::begun;
    if (++slot.content.id.generation == 0) slot.content.id.generation = 1;
    return &slot;
}

void client_slots::put_free(client_slot& slot) noexcept {
    slot.state = slot_state::free;
    free_.push_back(slot.content.id.slot);
}

void client_slots::set_in_flight(client_slot& slot, nanoseconds deadline) noexcept {
    slot.state = slot_state::in_flight;
    slot.deadline = deadline;
    next_deadline_ = std::min(next_deadline_, deadline);
    ++open_;
}

void client_slots::finish(client_slot& slot) noexcept {
    slot.state = slot_state::done;
    if (--open_ == 0) next_deadline_ = never;
    std::uint32_t tail = done_head_ + done_count_++;
    if (tail >= count()) tail -= count();
    done_[tail] = slot.content.id.slot;
}

client_slot* client_slots::take_done() noexcept {
    if (done_count_ == 0) return nullptr;
    client_slot& slot = slots_[done_[done_head_]];
    if (++done_head_ == count()) done_head_ = 0;
    --done_count_;
    slot.state = slot_state::taken;
    return &slot;
}

void client_slots::take_done(client_slot& slot) noexcept {
    // Rotates the ring once, leaving out this one: the order of the others stays.
    for (std::uint32_t left = done_count_; left > 0; --left) {
        client_slot* oldest = take_done();
        if (oldest == &slot) continue;
        oldest->state = slot_state::done;
        std::uint32_t tail = done_head_ + done_count_++;
        if (tail >= count()) tail -= count();
        done_[tail] = oldest->content.id.slot;
    }
    slot.state = slot_state::taken;
}

}  // namespace accel::core
