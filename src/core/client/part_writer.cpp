// SPDX-License-Identifier: Apache-2.0
#include "core/client/part_writer.hpp"

#include <algorithm>
#include <new>

namespace accel::core {

void part_writer::start(const channel_slot& call) noexcept {
    calls_[call.content.id.slot] = {call.content.id.generation, false, 0};
}

bool part_writer::is_awaiting(call_id call) const noexcept {
    if (call.slot >= slots_.count()) return false;
    const channel_slot& slot = slots_.all()[call.slot];
    return is_awaited(slot.state) && slot.content.id == call && calls_[call.slot].generation == call.generation;
}

bool part_writer::is_open(call_id call) const noexcept {
    return is_awaiting(call) && !calls_[call.slot].complete;
}

void part_writer::begin(channel_slot& part, call_id call) noexcept {
    part.state = slot_state::part_begun;
    call_of_[part.content.id.slot] = call;
}

void part_writer::send(channel_slot& part, std::size_t length, bool last) noexcept {
    const call_id own = part.content.id;
    const call_id id = call_of(part);
    upload& of = calls_[id.slot];
    of.complete = last;
    auto& header = *new (part.header) slot_header;
    header.flags = static_cast<std::uint16_t>(header_flag::part | (last ? 0 : header_flag::continues));
    header.slot = own.slot;
    header.generation = own.generation;
    header.length = length;
    header.parts_call = parts_call_of(id.slot, id.generation);
    header.request_parts_before = of.sent++;
    part.state = slot_state::part_sent;
    part.submitted = never;
    part.lent = part.staged = part.holds_response = false;
    part.epoch = life_.epoch();
    const std::span<const std::byte> payload{part.header + header_bytes, length};
    part.owed = backlog_.empty() && life_.path().deliver_plain(own.slot, payload) == status::ok;
    if (!part.owed) backlog_.push({own.slot, payload, nullptr, {}});
}

void part_writer::end_early(const channel_slot& call) noexcept {
    const call_id id = call.content.id;
    if (calls_[id.slot].generation != id.generation) return;
    for (channel_slot& each : slots_.all()) {
        if (each.state != slot_state::part_sent || each.owed || call_of(each) != id) continue;
        backlog_.remove(each.content.id.slot);
        slots_.put_free(each);
    }
}

std::uint32_t part_writer::left_behind() const noexcept {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(slots_.all(), [this](const channel_slot& each) { return is_left(each); }));
}

void part_writer::note_left_behind(nanoseconds at) noexcept {
    for (channel_slot& each : slots_.all())
        if (is_left(each) && each.submitted == never) each.submitted = at;
}

nanoseconds part_writer::left_since() const noexcept {
    nanoseconds first = never;
    for (const channel_slot& each : slots_.all())
        if (is_left(each)) first = std::min(first, each.submitted);
    return first;
}

void part_writer::settle_all() noexcept {
    for (channel_slot& each : slots_.all())
        if (each.state == slot_state::part_sent) slots_.put_free(each);
}

}  // namespace accel::core
