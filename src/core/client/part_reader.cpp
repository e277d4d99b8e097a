// SPDX-License-Identifier: Apache-2.0
#include "core/client/part_reader.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace accel::core {

// Lending.

void part_reader::start(const channel_slot& slot, const submit_options& options) noexcept {
    const call_id id = slot.content.id;
    calls_[id.slot] = {};
    calls_[id.slot].part_timeout = options.part_timeout;
    for (std::uint32_t i = 0; i < options.parts; ++i) lend(*slots_.take_free(), id);
}

/// A message that the link does not take waits in the backlog. The backlog finds out if the link has failed.
void part_reader::lend(channel_slot& slot, call_id id) noexcept {
    const call_id own = slot.content.id;
    places_[own.slot] = {id};
    ++calls_[id.slot].lent;
    auto& header = *new (slot.header) slot_header;
    header.flags = header_flag::more;
    header.slot = own.slot;
    header.generation = own.generation;
    header.parts_call = parts_call_of(id.slot, id.generation);
    header.response_room = static_cast<std::uint32_t>(room_);
    header.deadline_ns = never.count();
    slot.state = slot_state::lent;
    slot.lent = slot.staged = slot.holds_response = false;
    slot.epoch = life_.epoch();
    slot.owed = backlog_.empty() && life_.path().deliver_plain(own.slot, {}) == status::ok;
    if (!slot.owed) backlog_.push({own.slot, {}, nullptr, {}});
}

void part_reader::accept(channel_slot& slot, nanoseconds at) noexcept {
    slot.state = slot_state::in_parts;
    calls_[slot.content.id.slot].deadline = slot.deadline;
    renew_deadline(slot, at);
}

/// The link has failed, so nothing has left but what the server loses with the session.
void part_reader::undo(const channel_slot& slot) noexcept {
    for (channel_slot& each : slots_.all())
        if (each.state == slot_state::lent && places_[each.content.id.slot].call == slot.content.id) put_free(each);
}

void part_reader::put_free(channel_slot& slot) noexcept {
    const std::uint32_t index = slot.content.id.slot;
    if (!slot.owed) backlog_.remove(index);
    slot.owed = slot.holds_response = false;
    places_[index] = {};
    slots_.put_free(slot);
}

bool part_reader::is_open(call_id id) const noexcept {
    const channel_slot& slot = slots_.all()[id.slot];
    return slot.state == slot_state::in_parts && slot.content.id == id;
}

/// The time between parts runs while the server has room for one.
void part_reader::renew_deadline(channel_slot& slot, nanoseconds at) noexcept {
    const call& of = calls_[slot.content.id.slot];
    const bool runs = of.part_timeout > nanoseconds{0} && of.lent > 0 && !of.answered;
    const bool sooner = runs && of.part_timeout < of.deadline - at;
    slots_.set_deadline(slot, sooner ? at + of.part_timeout : of.deadline);
}

bool part_reader::server_waits(const channel_slot& slot, nanoseconds at) const noexcept {
    return slot.owed && calls_[slot.content.id.slot].deadline > at;
}

// Receiving.

bool part_reader::on_part(const link_event& event, nanoseconds at) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_of_parts(header, message_kind::response) && header.code == status::ok &&
                      header.slot < slots_.count() && event.payload.size() == header.length;
    if (!sane) return false;
    channel_slot& part = slots_[header.slot];
    if (part.state != slot_state::lent || !part.owed || part.content.id.generation != header.generation) return false;
    part.owed = false;
    place& at_place = places_[header.slot];
    const call_id id = at_place.call;
    if (!is_open(id)) {
        life_.path().consumed(header.slot);
        put_free(part);
        return true;
    }
    call& of = calls_[id.slot];
    --of.lent;
    at_place.number = header.parts_before;
    const call_id own = part.content.id;
    slots_[id.slot].fill(part.content, event, at, life_.clock_offset());
    part.content.id = own;
    part.content.call = id;
    part.content.more = true;
    part.asked = slots_[id.slot].asked;
    if (part.content.trace != nullptr) {  // the call may be released before the part
        part.trace = slots_[id.slot].trace;
        part.content.trace = &part.trace;
    }
    part.holds_response = true;  // so that its release comes here
    const bool expected = header.parts_before == of.next;
    if (!expected && !keep_early(of, part)) return false;
    if (expected) {
        hand_on(of, part);
        renew_deadline(slots_[id.slot], at);
        hand_on_early(id);
    }
    return true;
}

/// Files a part by its number. False: no correct server sends this one.
bool part_reader::keep_early(call& of, channel_slot& part) noexcept {
    const std::uint32_t index = part.content.id.slot;
    const std::uint64_t number = places_[index].number;
    const bool sane = number > of.next && number - of.next < slots_.count() && (!of.answered || number < of.count);
    if (!sane) return false;
    std::uint32_t* before = &of.early;
    while (*before != none && places_[*before].number < number) before = &places_[*before].next;
    if (*before != none && places_[*before].number == number) return false;
    part.state = slot_state::early;
    places_[index].next = std::exchange(*before, index);
    return true;
}

void part_reader::hand_on(call& of, channel_slot& part) noexcept {
    ++of.next;
    slots_.push_part(part);
}

/// Those whose turn has come, and then the last response.
void part_reader::hand_on_early(call_id id) noexcept {
    call& of = calls_[id.slot];
    while (of.early != none && places_[of.early].number == of.next) {
        channel_slot& part = slots_[of.early];
        of.early = std::exchange(places_[of.early].next, none);
        hand_on(of, part);
    }
    if (of.answered && of.next == of.count) slots_.finish(slots_[id.slot]);
}

bool part_reader::on_last(channel_slot& slot, const link_event& event, nanoseconds at) noexcept {
    const call_id id = slot.content.id;
    call& of = calls_[id.slot];
    const std::uint64_t count = event.header.parts_before;
    std::uint64_t arriving = of.lent;
    std::uint64_t least = of.next;  // so many have come, or are counted by one that has
    for (std::uint32_t each = of.early; each != none; each = places_[each].next) {
        ++arriving;
        least = places_[each].number + 1;  // they are in the order of their numbers
    }
    if (count < least || count - of.next > arriving) return false;
    slot.owed = false;
    slot.holds_response = event.borrowed;
    slot.fill(slot.content, event, at, life_.clock_offset());
    of.answered = true;
    of.count = count;
    renew_deadline(slot, at);
    hand_on_early(id);
    return true;
}

void part_reader::on_returned(channel_slot& room) noexcept {
    const call_id id = places_[room.content.id.slot].call;
    if (is_open(id)) --calls_[id.slot].lent;
    put_free(room);
}

// Ending.

void part_reader::release(channel_slot& part) noexcept {
    const call_id id = places_[part.content.id.slot].call;
    const bool again = is_open(id) && !calls_[id.slot].answered && life_.has_link();
    if (!again) return put_free(part);
    slots_.renew(part);
    lend(part, id);
    if (calls_[id.slot].lent == 1 && calls_[id.slot].part_timeout > nanoseconds{0})
        renew_deadline(slots_[id.slot], now());
}

/// A request that has not left takes its room back. If some of that has left, the request follows without its bytes
/// and too late, so that the server gives the room back.
void part_reader::end_early(channel_slot& slot) noexcept {
    const call_id id = slot.content.id;
    call& of = calls_[id.slot];
    bool left = false;
    for (channel_slot& each : slots_.all()) {
        const bool part = (each.state == slot_state::lent || each.state == slot_state::early) &&
                          places_[each.content.id.slot].call == id;
        if (!part) continue;
        left = left || each.owed;
        if (each.state == slot_state::early) life_.path().consumed(each.content.id.slot);
        if (!each.owed) put_free(each);
    }
    of.early = none;
    if (slot.owed || of.answered || !left || !life_.has_link()) return;
    auto& header = *reinterpret_cast<slot_header*>(slot.header);
    header.length = 0;
    header.extension_bytes = 0;
    header.deadline_ns = 0;
    backlog_.empty_out(id.slot);
    slot.owed = true;
    slot.epoch = life_.epoch();
}

std::uint32_t part_reader::left_behind() const noexcept {
    const auto is_left = [this](const channel_slot& each) {
        return each.state == slot_state::lent && !is_open(places_[each.content.id.slot].call);
    };
    return static_cast<std::uint32_t>(std::ranges::count_if(slots_.all(), is_left));
}

void part_reader::settle_all() noexcept {
    for (channel_slot& each : slots_.all())
        if (each.state == slot_state::lent) put_free(each);
}

}  // namespace accel::core
