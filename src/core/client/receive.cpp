// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_core.hpp"
#include "core/handle.hpp"
#include "core/metadata_description.hpp"
#include "core/tensor_description.hpp"

#include <algorithm>
#include <utility>

/// A response from the link to the application, and the end of calls that get none.
namespace accel::core {

std::size_t channel_core::poll(std::span<completion> out) noexcept {
    completion_room room = room_in(out);
    if (slots_.ready() > 0) [[unlikely]]
        room = hand_out(room);
    progress_inline(room);
    if (slots_.ready() > 0) [[unlikely]]
        room = hand_out(room);
    return out.size() - room.left;
}

/// Some may be elsewhere, so all are looked at.
[[gnu::noinline]] void channel_core::release_left(std::span<completion> out) noexcept {
    for (completion& each : out) each.release();
}

[[gnu::always_inline]] inline void channel_core::progress_inline(completion_room& out) noexcept {
    if (detours_) [[unlikely]]
        follow_detours();
    if (life_.connected()) [[likely]] {
        bool goes_on = take_events(out);
        if (now_ >= slots_.next_deadline()) [[unlikely]]
            goes_on = expire();
        if (goes_on && life_.watch().good()) [[likely]]
            return;
    }
    out = end_session(out);
}

void channel_core::progress(completion_room& out) noexcept {
    progress_inline(out);
}

/// False: the connection is lost.
[[gnu::always_inline]] inline bool channel_core::take_events(completion_room& out) noexcept {
    const link_event* event = events_.data();
    std::size_t left = life_.events().poll(events_);
    const nanoseconds taken_at = now_ = clock_.now();
    for (; left > 0; --left, ++event) {
        const bool arrived = event->kind == event_kind::arrived;
        if (arrived && on_response(*event, taken_at, out)) [[likely]]
            continue;
        arrived ? lose(status::protocol_error) : on_event(*event);
        if (!life_.has_link()) return false;
    }
    return true;
}

[[gnu::always_inline]] inline bool channel_core::fits(const link_event& event) const noexcept {
    const slot_header& header = event.header;
    return header.slot < slots_.count() && header.length <= max_payload_bytes && event.payload.size() == header.length;
}

bool channel_core::is_sane(const link_event& event) const noexcept {
    return is_well_formed(event.header, message_kind::response) && fits(event);
}

[[gnu::always_inline]] inline bool channel_core::on_response(const link_event& event, nanoseconds at,
                                                             completion_room& out) noexcept {
    if (!is_plain(event.header, message_kind::response) || !fits(event)) [[unlikely]]
        return on_unusual_response(event, at, out);
    return take_response(event, at, out);
}

/// A response, straight into `out` as far as there is room and none waits before it. False: no correct server sends it.
[[gnu::always_inline]] inline bool channel_core::take_response(const link_event& event, nanoseconds at,
                                                               completion_room& out) noexcept {
    const slot_header& header = event.header;
    channel_slot& slot = slots_[header.slot];
    const bool awaited =
        slot.owed && slot.content.id.generation == header.generation && slot.state == slot_state::in_flight;
    if (!awaited) [[unlikely]]
        return on_other_response(event, at);
    if (slot.staged) [[unlikely]]
        return on_staged_response(slot, event, at);
    if (slot.scatters && !scatter(slot, event)) [[unlikely]]
        return false;
    slot.owed = false;
    slot.holds_response = event.borrowed;
    if (out.left > 0 && slots_.ready() == 0) [[likely]] {
        call_outcome& made = next_of(out);
        slot.fill(made, event, at, life_.clock_offset());
        count(slot, made);
        slots_.finish_taken(slot);
    } else {
        slot.fill(slot.content, event, at, life_.clock_offset());
        slots_.finish(slot);
    }
    return true;
}

/// A failure, or a response with extensions: it ends where its metadata begins, if metadata follows it.
[[gnu::noinline]] bool channel_core::on_unusual_response(const link_event& event, nanoseconds at,
                                                         completion_room& out) noexcept {
    if (!is_sane(event)) return on_other_response(event, at);
    link_event rest = event;
    if (const std::uint16_t bytes = metadata_after_response(event); bytes > 0) {
        channel_slot& slot = slots_[event.header.slot];
        slot.metadata_of = event.header.generation;
        slot.metadata_bytes = bytes;
        rest.header.length -= bytes;
        rest.payload = rest.payload.first(rest.payload.size() - bytes);
        slot.metadata_at = rest.payload.data() + rest.payload.size();
    }
    return take_response(rest, at, out);
}

/// 0 also for a failure, and for an answer that nobody waits for.
std::uint16_t channel_core::metadata_after_response(const link_event& event) noexcept {
    const slot_header& header = event.header;
    if (header.code != status::ok) return 0;
    const channel_slot& slot = slots_[header.slot];
    if (!slot.owed || slot.content.id.generation != header.generation) return 0;
    return metadata_after(request_.responses->header(header.slot), header.generation, event.payload.size());
}

namespace {

/// Gives a slot back, and says nothing else.
bool is_bare(const slot_header& header) noexcept {
    const bool usual = header.code == status::ok || header.code == status::cancelled;
    return usual && header.length == 0 && header.extension_bytes == 0;
}

}  // namespace

/// A part, the end of a response in parts, a slot that comes back without one, an answer that nobody waits for, or
/// nothing that a correct server sends.
[[gnu::noinline, gnu::cold]] bool channel_core::on_other_response(const link_event& event, nanoseconds at) noexcept {
    if ((event.header.flags & header_flag::more) != 0) return parts_.on_part(event, at);
    if (!is_sane(event)) return false;
    channel_slot& slot = slots_[event.header.slot];
    const bool current = slot.owed && slot.content.id.generation == event.header.generation;
    if (current && slot.state == slot_state::in_parts) return parts_.on_last(slot, event, at);
    const bool part = current && slot.state == slot_state::part_sent;
    if (part && !is_bare(event.header)) return false;
    life_.path().consumed(event.header.slot);
    if (current && slot.state == slot_state::lent)
        parts_.on_returned(slot);
    else if (part)
        request_parts_.on_returned(slot);
    else
        on_late_response(slot, event.header);
    return true;
}

[[gnu::noinline]] bool channel_core::on_staged_response(channel_slot& slot, const link_event& event,
                                                        nanoseconds at) noexcept {
    detours_ = true;
    return staging_.on_response(slot, event, at, life_.clock_offset());
}

/// Why a call failed stays in its slot. False: the response is longer than the server was told.
[[gnu::noinline]] bool channel_core::scatter(channel_slot& slot, const link_event& event) noexcept {
    slot.scatters = false;
    if (event.header.code != status::ok) return true;
    const range_list& into = scattered_.of(slot.content.id.slot);
    if (event.payload.size() > into.bytes) return false;
    range_cursor{}.copy_in(into.ranges, event.payload.data(), event.payload.size());
    count_copied(event.payload.size());
    return true;
}

/// The answer of a call that has ended without it, or of none.
void channel_core::on_late_response(channel_slot& slot, const slot_header& header) noexcept {
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

/// The link has failed, or no longer touches what was lent for a slot.
[[gnu::noinline]] void channel_core::on_event(const link_event& event) noexcept {
    if (event.kind == event_kind::lost) return static_cast<void>(doubt(event.reason));
    const std::uint32_t index = event.header.slot;
    if (index < slots_.count() && slots_[index].state == slot_state::settling) slots_.finish(slots_[index]);
}

/// Completions that wait. The room by value, as in `end_session`.
[[gnu::noinline]] completion_room channel_core::hand_out(completion_room out) noexcept {
    if (life_.inherited()) return out;
    while (out.left > 0) {
        const channel_slot* slot = slots_.take_done();
        if (slot == nullptr) break;
        count(*slot, slot->content);
        next_of(out) = slot->content;
    }
    return out;
}

/// Calls that wait for a copy, for room, or for the reason of a loss.
[[gnu::noinline]] void channel_core::follow_detours() noexcept {
    if (life_.inherited()) return;
    status failure = status::ok;
    if (staging_.active()) failure = staging_.poll(link_takes_calls() ? &life_.path() : nullptr, life_.epoch());
    if (failure == status::ok && life_.has_link() && !life_.in_doubt())
        failure = backlog_.send(life_.path(), life_.epoch(), slots_);
    if (failure != status::ok) (void)doubt_unsent(failure);
    if (life_.in_doubt() && now() >= life_.doubt_ends()) lose(status::peer_lost);
    detours_ = staging_.active() || !backlog_.empty() || life_.in_doubt();
}

/// Before calls of the backlog no other leaves.
bool channel_core::link_takes_calls() const noexcept {
    return life_.has_link() && backlog_.empty() && !life_.in_doubt();
}

// Release.

[[gnu::always_inline]] inline status channel_core::release_inline(call_id id) noexcept {
    channel_slot* slot = slots_.find(id);
    if (life_.inherited() || slot == nullptr) return fail(status::invalid_state);
    const bool simple = slot->state == slot_state::taken && !slot->holds_response && !slot->owed;
    if (!simple) [[unlikely]]
        return release_other(*slot);
    slots_.put_free(*slot);
    return status::ok;
}

status channel_core::release(call_id id) noexcept {
    return release_inline(id);
}

/// A call that was never submitted, whose response lies in memory of the link, or whose answer is still to come.
status channel_core::release_other(channel_slot& slot) noexcept {
    if (slot.state == slot_state::part_begun) {
        slots_.put_free(slot);
        return status::ok;
    }
    if (slot.state != slot_state::begun && slot.state != slot_state::taken) return fail(status::invalid_state);
    if (slot.holds_response) release_response(slot);
    if (parts_.has(slot)) {
        parts_.release(slot);
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

void channel_core::release_response(channel_slot& slot) noexcept {
    slot.holds_response = false;
    life_.consumed(slot.content.id.slot, slot.epoch);
    if (slot.epoch != life_.epoch() && !hold_responses(slot.epoch)) life_.forget(slot.epoch);
}

/// Whether the application still holds responses of that epoch's connection.
bool channel_core::hold_responses(std::uint32_t epoch) const noexcept {
    return std::ranges::any_of(
        slots_.all(), [epoch](const channel_slot& slot) { return slot.holds_response && slot.epoch == epoch; });
}

/// The header of every response lies in its slot, wherever its payload does.
result<std::span<tensor>, status> channel_core::tensors(const call_outcome& of, std::span<tensor> room) noexcept {
    const channel_slot* slot = slots_.find(of.id);
    if (life_.inherited() || slot == nullptr || slot->state != slot_state::taken || of.status != status::ok)
        return status::invalid_state;
    return read_description(request_.responses->header(of.id.slot), of.id.generation, of.response,
                            slot->elsewhere != of.id.generation, room);
}

/// What followed the response follows it still, where that lies in a slot or in memory of the host.
result<std::span<const metadata_entry>, status> channel_core::metadata(const call_outcome& of,
                                                                       metadata_room& room) noexcept {
    const channel_slot* slot = slots_.find(of.id);
    if (life_.inherited() || slot == nullptr || slot->state != slot_state::taken || of.status != status::ok)
        return status::invalid_state;
    const std::uint32_t generation = of.id.generation;
    if (slot->metadata_of != generation) return read_metadata(request_.responses->header(of.id.slot), generation, room);
    if (slot->elsewhere == generation) return status::unsupported;
    return read_metadata({slot->metadata_at, slot->metadata_bytes}, room);
}

// Calls that end without a response.

status channel_core::cancel(call_id id) noexcept {
    channel_slot* slot = slots_.find(id);
    if (life_.inherited() || slot == nullptr) return fail(status::invalid_state);
    if (slot->state == slot_state::settling) return status::ok;  // it has ended, and completes in time
    if (!is_awaited(slot->state)) return fail(status::invalid_state);
    now_ = clock_.now();
    end_early(*slot, status::cancelled, now_);
    if (slot->owed && life_.has_link()) life_.tell_cancelled(id);
    return status::ok;
}

/// False: the connection is lost. A server that has kept lent memory for too long cannot reach it any more
/// without its session.
[[gnu::noinline]] bool channel_core::expire() noexcept {
    if (end_late_calls() && life_.has_link()) {
        warn_of_end("the server has not released lent memory within peer_timeout of the end of a call");
        lose(status::peer_lost);
    }
    return life_.has_link();
}

/// True: lent memory of a call that has ended is kept for too long.
bool channel_core::end_late_calls() noexcept {
    nanoseconds next = never;
    bool overdue = false;
    for (channel_slot& slot : slots_.all()) {
        if (slot.state == slot_state::settling && slot.deadline <= now_) overdue = true;
        if (is_awaited(slot.state) && slot.deadline <= now_) end_late(slot);
        const bool open = is_awaited(slot.state) || slot.state == slot_state::settling;
        if (open) next = std::min(next, slot.deadline);
    }
    slots_.set_next_deadline(next);
    return overdue;
}

void channel_core::end_late(channel_slot& slot) noexcept {
    const bool server_waits = slot.state == slot_state::in_parts && parts_.server_waits(slot, now_);
    end_early(slot, status::timed_out, now_);
    if (server_waits && life_.has_link()) life_.tell_cancelled(slot.content.id);
}

/// Completes a call before its answer: at once, unless the transport still touches memory that was lent for it. Then
/// the server has a `peer_timeout` to release it.
void channel_core::end_early(channel_slot& slot, status why, nanoseconds at, std::uint32_t code) noexcept {
    slot.fail(why, at, code);
    slot.scatters = false;
    if (slot.state == slot_state::in_parts) parts_.end_early(slot);
    request_parts_.end_early(slot);
    const std::uint32_t index = slot.content.id.slot;
    const bool copied = slot.staged && staging_.abandon(slot);
    if (!slot.owed && !slot.staged) backlog_.remove(index);
    const bool free_now = !copied && (!slot.lent || (life_.has_link() && life_.path().retract(index)));
    if (free_now) return slots_.finish(slot);
    const nanoseconds patience = copied ? never : life_.release_patience();
    slots_.set_settling(slot, patience >= never - at ? never : at + patience);
}

// The end of a session, which may have answers left.

/// The room by value, so that in `progress` it stays in registers.
[[gnu::noinline]] completion_room channel_core::end_session(completion_room out) noexcept {
    if (life_.inherited()) return out;
    if (life_.has_link()) out = leave_session(out);
    if (life_.has_link()) return out;
    now_ = clock_.now();
    settle(now_);
    return out;
}

/// Goes on with calls in flight while the server drains, or the session is about to be replaced.
completion_room channel_core::leave_session(completion_room out) noexcept {
    if (life_.connected() && life_.watch().drains()) life_.leave(status::closed);
    const status ended = life_.watch().ended();
    if (ended != status::ok) {
        take_rest(out);
        // An answer that is still being copied was given.
        const bool copies = staging_.active() || (life_.has_link() && life_.path().receives());
        lose(ended == status::closed && copies ? status::peer_lost : ended);
    } else if (life_.leaving() && take_events(out)) {
        if (now_ >= slots_.next_deadline()) (void)expire();
        if (slots_.open() == 0) lose(life_.loss());
    }
    return out;
}

/// Answers that came before the end. A correct server has sent none after it. A long one takes several looks.
void channel_core::take_rest(completion_room& out) noexcept {
    constexpr int most_looks = 10'000;
    constexpr int most_in_vain = 64;  // in a row without an answer; all that a socket holds is read in fewer
    int in_vain = 0;
    for (int looks = most_looks; looks > 0 && in_vain < most_in_vain; --looks) {
        const auto open = slots_.open();
        const auto ready = slots_.ready() + out.left;
        if (!take_events(out) || slots_.open() == 0) return;
        const bool same = open == slots_.open() && ready == slots_.ready() + out.left;
        in_vain = same ? in_vain + 1 : 0;
    }
}

}  // namespace accel::core

/// The public `channel`, as in submit.cpp, and `completion`.
namespace accel {

std::size_t channel::poll(std::span<completion> out) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("poll");
    return own.poll(out);
}
status channel::cancel(call_id id) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("cancel");
    return own.cancel(id);
}
status channel::release(call_id id) noexcept {
    core::channel_core& own = core::behind(core_, "channel");
    [[maybe_unused]] const auto inside = own.enter("release");
    return own.release(id);
}

void completion::give_back() noexcept {
    core::channel_core& owner = *std::exchange(owner_, nullptr);
    (void)owner.release_inline(id);
    owner.let_go();
}
call_id completion::detach() noexcept {
    if (owner_ != nullptr) std::exchange(owner_, nullptr)->let_go();
    return id;
}
result<std::span<tensor>, status> completion::tensors(std::span<tensor> room) const noexcept {
    if (owner_ == nullptr) return accel::status::invalid_state;
    return owner_->tensors(*this, room);
}
result<std::span<const metadata_entry>, status> completion::metadata(metadata_room& room) const noexcept {
    if (owner_ == nullptr) return accel::status::invalid_state;
    return owner_->metadata(*this, room);
}

}  // namespace accel
