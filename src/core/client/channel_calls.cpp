// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_calls.hpp"

#include "core/context_state.hpp"

#include <algorithm>

namespace accel::core {
namespace {

nanoseconds quarantine_of(const channel_options& options) noexcept {
    if (options.quarantine_timeout > nanoseconds{0}) return options.quarantine_timeout;
    return options.call_timeout > never / 4 ? never : 4 * options.call_timeout;
}

}  // namespace

channel_calls::channel_calls(const connect_request& request, event_set& wakeups)
    : timeout_(request.options.call_timeout),
      quarantine_timeout_(quarantine_of(request.options)),
      slots_(request.options.slots),
      backlog_(slots_.count()),
      staging_(request, slots_, wakeups),
      parts_(slots_, backlog_, request.options.response_bytes),
      gathered_(slots_.count()),
      scattered_(slots_.count()) {
    for (channel_slot& slot : slots_.all()) slot.header = request.requests->header(slot.content.id.slot);
    if (request.context != nullptr && request.context->metrics() != nullptr) {
        const backend* const scheme = request.context->find_backend(request.peer.scheme);
        metrics_ =
            std::make_unique<client_metrics>(*request.context->metrics(), scheme->scheme(), submitted_, quarantined_);
    }
}

bool channel_calls::on_staged_response(channel_slot& slot, const link_event& event, nanoseconds at,
                                       const channel_lifecycle& over) noexcept {
    detours_ = true;
    return staging_.on_response(slot, event, at, over.clock_offset());
}

/// Why a call failed stays in its slot. False: the response is longer than the server was told.
[[gnu::noinline]] bool channel_calls::scatter(channel_slot& slot, const link_event& event) noexcept {
    slot.scatters = false;
    if (event.header.code != status::ok) return true;
    const range_list& into = scattered_.of(slot.content.id.slot);
    if (event.payload.size() > into.bytes) return false;
    range_cursor{}.copy_in(into.ranges, event.payload.data(), event.payload.size());
    count_copied(event.payload.size());
    return true;
}

/// A part, the end of a response in parts, a slot that comes back without one, an answer that nobody waits for, or
/// nothing that a correct server sends.
[[gnu::noinline, gnu::cold]] bool channel_calls::on_other_response(const link_event& event, nanoseconds at,
                                                                   const channel_lifecycle& over) noexcept {
    if ((event.header.flags & header_flag::more) != 0) return parts_.on_part(event, at, over);
    if (!is_sane(event)) return false;
    channel_slot& slot = slots_[event.header.slot];
    const bool current = slot.owed && slot.content.id.generation == event.header.generation;
    if (current && slot.state == slot_state::in_parts) return parts_.on_last(slot, event, over.clock_offset(), at);
    over.path().consumed(event.header.slot);
    if (current && slot.state == slot_state::lent)
        parts_.on_returned(slot);
    else
        on_late_response(slot, event.header);
    return true;
}

/// The answer of a call that has ended without it, or of none.
void channel_calls::on_late_response(channel_slot& slot, const slot_header& header) noexcept {
    ++stale_;
    if (metrics_ != nullptr) metrics_->count_stale();
    if (!slot.owed || slot.content.id.generation != header.generation) return;
    slot.owed = false;
    if (slot.state == slot_state::settling) slots_.finish(slot);
    if (slot.state == slot_state::quarantined) {
        quarantined_.add(~std::uint64_t{0});
        slots_.put_free(slot);
    }
}

void channel_calls::on_buffer_released(std::uint32_t slot) noexcept {
    if (slot < slots_.count() && slots_[slot].state == slot_state::settling) slots_.finish(slots_[slot]);
}

completion_room channel_calls::hand_out(completion_room out) noexcept {
    for (; out.left > 0; --out.left) {
        const channel_slot* slot = slots_.take_done();
        if (slot == nullptr) break;
        count(*slot, slot->content);
        *out.next++ = slot->content;
    }
    return out;
}

void channel_calls::end_early(channel_slot& slot, status why, nanoseconds at, const channel_lifecycle& over,
                              std::uint32_t code) noexcept {
    slot.fail(why, at, code);
    slot.scatters = false;
    if (slot.state == slot_state::in_parts) parts_.end_early(slot, over);
    const std::uint32_t index = slot.content.id.slot;
    const bool copied = slot.staged && staging_.abandon(slot);
    if (!slot.owed && !slot.staged) backlog_.remove(index);
    const bool free_now = !copied && (!slot.lent || (over.has_link() && over.path().retract(index)));
    if (free_now) return slots_.finish(slot);
    const nanoseconds patience = copied ? never : over.release_patience();
    slots_.set_settling(slot, patience >= never - at ? never : at + patience);
}

void channel_calls::end_late(channel_slot& slot, nanoseconds at, const channel_lifecycle& over) noexcept {
    const bool server_waits = slot.state == slot_state::in_parts && parts_.server_waits(slot, at);
    end_early(slot, status::timed_out, at, over);
    if (server_waits && over.has_link()) over.tell_cancelled(slot.content.id);
}

bool channel_calls::expire(nanoseconds at, const channel_lifecycle& over) noexcept {
    nanoseconds next = never;
    bool overdue = false;
    for (channel_slot& slot : slots_.all()) {
        if (slot.state == slot_state::settling && slot.deadline <= at) overdue = true;
        if (is_awaited(slot.state) && slot.deadline <= at) end_late(slot, at, over);
        const bool open = is_awaited(slot.state) || slot.state == slot_state::settling;
        if (open) next = std::min(next, slot.deadline);
    }
    slots_.set_next_deadline(next);
    return overdue;
}

void channel_calls::end_all(nanoseconds at, channel_lifecycle& over) noexcept {
    const std::uint32_t code = over.loss() == status::closed && !over.ending() ? unseen_code : 0;
    for (channel_slot& slot : slots_.all()) {
        if (is_awaited(slot.state)) end_early(slot, over.loss(), at, over, code);
        if (slot.state == slot_state::settling) over.release_by(slot.deadline);
    }
    slots_.set_next_deadline(never);
}

void channel_calls::settle_all() noexcept {
    backlog_.clear();
    parts_.settle_all();
    for (channel_slot& slot : slots_.all()) {
        slot.owed = false;
        const bool copied = slot.staged && staging_.copies(slot);
        if (slot.state == slot_state::settling && !copied) slots_.finish(slot);
        if (slot.state == slot_state::quarantined) slots_.put_free(slot);
    }
    quarantined_.add(~quarantined_.read() + 1);  // 0 again
}

/// Also of a call that was never submitted, whose response lies in memory of the link, or whose answer is
/// still to come.
status channel_calls::release(channel_slot& slot, channel_lifecycle& over) noexcept {
    if (slot.state != slot_state::begun && slot.state != slot_state::taken) return status::invalid_state;
    if (slot.holds_response) consumed(slot, over);
    if (parts_.has(slot)) {
        parts_.release(slot, over);
        detours_ = detours_ || !backlog_.empty();
        return status::ok;
    }
    if (slot.state == slot_state::begun || !slot.owed) {
        slots_.put_free(slot);
    } else {
        slot.state = slot_state::quarantined;
        quarantined_.add();
    }
    return status::ok;
}

void channel_calls::consumed(channel_slot& slot, channel_lifecycle& over) noexcept {
    slot.holds_response = false;
    over.consumed(slot.content.id.slot, slot.epoch);
    if (slot.epoch != over.epoch() && !hold_responses(slot.epoch)) over.forget(slot.epoch);
}

/// A call that has ended keeps when it began and how long it took.
bool channel_calls::gives_up_on_late_answers(nanoseconds at) const noexcept {
    return std::ranges::any_of(slots_.all(), [&](const channel_slot& slot) {
        return slot.state == slot_state::quarantined &&
               at - slot.submitted - slot.content.timeline.total >= quarantine_timeout_;
    });
}

bool channel_calls::hold_responses(std::uint32_t epoch) const noexcept {
    return std::ranges::any_of(
        slots_.all(), [epoch](const channel_slot& slot) { return slot.holds_response && slot.epoch == epoch; });
}

channel_statistics channel_calls::statistics() const noexcept {
    channel_statistics out;
    const auto is_part = [](const channel_slot& slot) { return slot.state == slot_state::done && slot.content.more; };
    const auto parts = static_cast<std::uint64_t>(std::ranges::count_if(slots_.all(), is_part));
    out.submitted = submitted_.read();
    out.completed = out.submitted - slots_.open() - (slots_.ready() - parts);  // every other call was handed out
    out.stale = stale_;
    out.quarantined = quarantined();
    return out;
}

}  // namespace accel::core
