#include "core/client/channel_core.hpp"

#include "core/event_signal.hpp"
#include "core/handle.hpp"
#include "core/region_state.hpp"

#include <algorithm>
#include <new>
#include <utility>

/// The data path of a channel, in the order a call travels. Nothing here allocates, locks or logs.
namespace accel::core {

status channel_core::begin(call_view& out) noexcept {
    if (!connected()) [[unlikely]]
        return why_unusable();
    client_slot* slot = slots_.take_free();
    if (slot == nullptr) return status::again;
    out.id = slot->content.id;
    out.request = {slot->header + header_bytes, request_.options.request_bytes};
    return status::ok;
}

[[gnu::noinline]] status channel_core::why_unusable() const noexcept {
    if (inherited()) return status::invalid_state;
    return loss_;
}

status channel_core::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    client_slot* slot = slots_.find(id);
    if (const status bad = check_submit(slot, length, options); bad != status::ok) [[unlikely]]
        return bad;
    const std::span<const std::byte> payload{slot->header + header_bytes, length};
    if (is_staged(options.response_into, true)) [[unlikely]]
        return submit_staged(*slot, payload, nullptr, {false, true}, options);
    return submit_payload(*slot, payload, nullptr, options);
}

status channel_core::submit(call_id id, slice payload, const submit_options& options) noexcept {
    client_slot* slot = slots_.find(id);
    if (const status bad = check_submit(slot, payload.size(), options); bad != status::ok) return bad;
    if (payload.region() == nullptr) return status::invalid_argument;
    if (payload.region()->inherited()) return status::invalid_state;
    const staged_parts staged{is_staged(payload, false), is_staged(options.response_into, true)};
    if (staged.payload || staged.response) {
        return submit_staged(*slot, payload.bytes(), payload.region(), staged, options);
    }
    return submit_payload(*slot, payload.bytes(), payload.region(), options);
}

inline status channel_core::check_submit(const client_slot* slot, std::size_t length,
                                         const submit_options& options) const noexcept {
    if (slot == nullptr || slot->state != slot_state::begun) return status::invalid_state;
    if (!connected()) return why_unusable();
    if (length > request_.options.request_bytes) return status::message_too_large;
    if (options.timeout < nanoseconds{0}) return status::invalid_argument;
    if (options.response_into.empty()) return status::ok;
    const region_state* const into = options.response_into.region();
    if (into == nullptr) return status::invalid_argument;
    return into->inherited() ? status::invalid_state : status::ok;
}

/// Lent memory of a GPU that the link does not reach.
inline bool channel_core::is_staged(slice lent, bool written) const noexcept {
    return !lent.empty() && lent.region()->gpu() != nullptr &&
           !connection_.path->reaches(*lent.region(), written);
}

inline void channel_core::write_header(const client_slot& slot, std::size_t length, nanoseconds deadline,
                                       const submit_options& options) const noexcept {
    // Read before anything is written: the compiler cannot know that the header lies apart.
    const call_id id = slot.content.id;
    const std::int64_t offset = connection_.watch->clock_offset_ns.load(std::memory_order_relaxed);
    auto& header = *new (slot.header) slot_header;
    header.slot = id.slot;
    header.generation = id.generation;
    header.length = length;
    header.trace_id = options.trace_id;
    const std::size_t room = options.response_into.empty()
                                 ? request_.options.response_bytes
                                 : std::min(options.response_into.size(), request_.options.response_bytes);
    header.response_room = static_cast<std::uint32_t>(room);
    header.deadline_ns = deadline == never ? never.count() : deadline.count() + offset;
}

[[gnu::always_inline]] inline void channel_core::stamp(client_slot& slot, std::size_t length,
                                                       const submit_options& options) const noexcept {
    const nanoseconds submitted = now();
    const nanoseconds timeout =
        options.timeout > nanoseconds{0} ? options.timeout : request_.options.call_timeout;
    const nanoseconds deadline = timeout >= never - submitted ? never : submitted + timeout;
    slot.submitted = submitted;
    slot.deadline = deadline;
    write_header(slot, length, deadline, options);
}

[[gnu::always_inline]] inline void channel_core::accept(client_slot& slot,
                                                        const submit_options& options) noexcept {
    slot.content.tag = options.tag;
    slot.content.trace_id = options.trace_id;
    slots_.set_in_flight(slot);
    ++statistics_.submitted;
}

[[gnu::always_inline]] inline status channel_core::submit_payload(client_slot& slot,
                                                                  std::span<const std::byte> payload,
                                                                  const region_state* lent,
                                                                  const submit_options& options) noexcept {
    stamp(slot, payload.size(), options);

    const bool lends = lent != nullptr || !options.response_into.empty();
    const std::uint32_t index = slot.content.id.slot;
    const status sent = detours_ && !backlog_.empty() ? status::again
                        : lends ? connection_.path->deliver({index, payload, lent, options.response_into})
                                : connection_.path->deliver_plain(index, payload);
    if (sent != status::ok) [[unlikely]] {
        if (sent != status::again && !doubt(sent)) return loss_;
        return hold_back(slot, {index, payload, lent, options.response_into}, options);
    }
    slot.owed = true;
    slot.lent = lends;
    slot.staged = false;
    slot.epoch = epoch_;
    accept(slot, options);
    return status::ok;
}

// … for those who are not in this file.
void channel_core::stamp_staged(client_slot& slot, std::size_t length,
                                const submit_options& options) const noexcept {
    stamp(slot, length, options);
}
void channel_core::accept_later(client_slot& slot, const submit_options& options) noexcept {
    accept(slot, options);
}
void channel_core::fill_staged(client_slot& slot, const link_event& event) const noexcept {
    fill(slot.content, slot, event);
}

std::size_t channel_core::poll(std::span<completion> out) noexcept {
    completion_room room{out.data(), out.size()};
    hand_out(room);
    progress(room);
    hand_out(room);
    const std::size_t count = out.size() - room.left;
    statistics_.completed += count;
    return count;
}

/// Takes what the transport has, then what time and the control plane say. Answers go straight into `out`, as
/// far as there is room and none is waiting before them.
[[gnu::always_inline]] inline void channel_core::progress(completion_room& out) noexcept {
    if (detours_) [[unlikely]]
        follow_detours();
    if (connected()) [[likely]] {
        bool goes_on = take_events(out);
        if (now_ >= slots_.next_deadline()) [[unlikely]]
            goes_on = expire();
        if (goes_on && connection_.watch->ended() == status::ok) [[likely]]
            return;
    }
    out = end_session(out);
}

/// Calls that wait for a copy, for room, or for the reason of a loss.
[[gnu::noinline]] void channel_core::follow_detours() noexcept {
    if (inherited()) return;
    if (copies_go_on()) poll_staging();
    if (state_ == state::connected && !backlog_.empty() && !in_doubt()) send_backlog();
    if (in_doubt() && now() >= name_by_) lose(status::peer_lost);
    detours_ = copies_go_on() || !backlog_.empty() || in_doubt();
}

/// The room by value, so that in `progress` it stays in registers.
[[gnu::noinline]] channel_core::completion_room channel_core::end_session(completion_room out) noexcept {
    if (inherited()) return out;
    const status ended = connection_.watch->ended();
    if (state_ == state::connected && ended != status::ok) {
        take_events(out);  // answers that came before the end, but after the look before
        lose(ended);
    }
    if (state_ == state::connected) return out;
    now_ = now();
    settle_lost();
    return out;
}

/// False: the connection is lost.
[[gnu::always_inline]] inline bool channel_core::take_events(completion_room& out) noexcept {
    const link_event* event = events_.data();
    std::size_t left = connection_.events->poll(events_);
    now_ = now();
    for (; left > 0; --left, ++event) {
        if (event->kind == event_kind::arrived) [[likely]] {
            on_response(*event, out);
        } else {
            on_event(*event);
        }
        if (state_ != state::connected) [[unlikely]]
            return false;
    }
    return true;
}

[[gnu::noinline]] void channel_core::on_event(const link_event& event) noexcept {
    if (event.kind == event_kind::lost) return static_cast<void>(doubt(event.reason));
    on_let_go(event.header.slot);
}

inline void channel_core::on_response(const link_event& event, completion_room& out) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_well_formed(header, message_kind::response) && header.slot < slots_.count() &&
                      header.length <= max_payload_bytes && event.payload.size() == header.length;
    if (!sane) [[unlikely]]
        return lose(status::protocol_error);
    client_slot& slot = slots_[header.slot];
    const bool awaited =
        slot.owed && slot.content.id.generation == header.generation && slot.state == slot_state::in_flight;
    if (!awaited) [[unlikely]]
        return on_late_response(slot, header);
    if (slot.staged) [[unlikely]]
        return on_staged_response(slot, event);
    slot.owed = false;
    slot.holds_response = event.borrowed;
    if (out.left > 0 && slots_.ready() == 0) [[likely]] {
        --out.left;
        fill(*out.next++, slot, event);
        slots_.finish_taken(slot);
    } else {
        fill(slot.content, slot, event);
        slots_.finish(slot);
    }
}

/// The answer of a call that has ended without it, or of none.
[[gnu::noinline]] void channel_core::on_late_response(client_slot& slot, const slot_header& header) noexcept {
    ++statistics_.stale;
    connection_.path->consumed(header.slot);
    if (!slot.owed || slot.content.id.generation != header.generation) return;
    slot.owed = false;
    if (slot.state == slot_state::settling) slots_.finish(slot);
    if (slot.state == slot_state::quarantined) {
        --statistics_.quarantined;
        slots_.put_free(slot);
    }
}

void channel_core::on_let_go(std::uint32_t index) noexcept {
    if (index < slots_.count() && slots_[index].state == slot_state::settling) slots_.finish(slots_[index]);
}

/// Writes a completion where it is wanted: all of it, whatever was there.
inline void channel_core::fill(completion& out, const client_slot& slot,
                               const link_event& event) const noexcept {
    const slot_header& header = event.header;
    out.id = slot.content.id;
    out.status = header.code;
    out.code = header.application_code;
    out.tag = slot.content.tag;
    out.trace_id = slot.content.trace_id;
    out.response = event.payload;
    const nanoseconds offset{connection_.watch->clock_offset_ns.load(std::memory_order_relaxed)};
    const nanoseconds arrival = nanoseconds{header.arrival_ns} - offset;
    const nanoseconds total = now_ - slot.submitted;
    const nanoseconds server = from_ticks(header.server_ticks);
    const nanoseconds request = std::min(not_negative(arrival - slot.submitted), total);
    out.timeline.total = total;
    out.timeline.request = request;
    out.timeline.queue = from_ticks(header.queue_ticks);
    out.timeline.copy = from_ticks(header.copy_ticks);
    out.timeline.preprocessing = from_ticks(header.preprocessing_ticks);
    out.timeline.inference = from_ticks(header.inference_ticks);
    out.timeline.response = not_negative(total - request - server);
    out.timeline.server = server;
}

status channel_core::cancel(call_id id) noexcept {
    client_slot* slot = slots_.find(id);
    if (inherited() || slot == nullptr) return status::invalid_state;
    if (slot->state == slot_state::settling) return status::ok;  // it has ended, and completes in time
    if (slot->state != slot_state::in_flight) return status::invalid_state;
    now_ = now();
    end_early(*slot, status::cancelled);
    return status::ok;
}

/// Completes a call before its answer: at once, unless the transport still touches memory that was lent for
/// it. Then the server has a `peer_timeout` to let go of it (`reclaim`).
void channel_core::end_early(client_slot& slot, status why) noexcept {
    slot.content.status = why;
    slot.content.code = 0;
    slot.content.response = {};
    slot.content.timeline = {};
    slot.content.timeline.total = now_ - slot.submitted;
    const bool copied = slot.staged && abandon_staging(slot);
    if (!slot.owed && !slot.staged) leave_backlog(slot.content.id.slot);
    const bool free_now =
        !copied &&
        (!slot.lent || (state_ == state::connected && connection_.path->retract(slot.content.id.slot)));
    if (free_now) return slots_.finish(slot);
    const nanoseconds patience = copied    ? never
                                 : ending_ ? request_.options.close_timeout
                                           : request_.options.peer_timeout;
    slots_.set_settling(slot, patience >= never - now_ ? never : now_ + patience);
}

bool channel_core::expire() noexcept {
    nanoseconds next = never;
    bool overdue = false;
    for (client_slot& slot : slots_.all()) {
        if (slot.state == slot_state::settling && slot.deadline <= now_) overdue = true;
        if (slot.state == slot_state::in_flight && slot.deadline <= now_) end_early(slot, status::timed_out);
        const bool open = slot.state == slot_state::in_flight || slot.state == slot_state::settling;
        if (open) next = std::min(next, slot.deadline);
    }
    slots_.set_next_deadline(next);
    if (overdue && state_ == state::connected) reclaim();
    return state_ == state::connected;
}

inline void channel_core::hand_out(completion_room& out) noexcept {
    if (slots_.ready() == 0) [[likely]]
        return;
    if (inherited()) return;
    for (; out.left > 0; --out.left) {
        const client_slot* slot = slots_.take_done();
        if (slot == nullptr) break;
        *out.next++ = slot->content;
    }
}

[[gnu::noinline]] void channel_core::consumed(client_slot& slot) noexcept {
    slot.holds_response = false;
    if (slot.epoch != epoch_) [[unlikely]]
        return consumed_late(slot);
    connection_.path->consumed(slot.content.id.slot);
}

status channel_core::release(call_id id) noexcept {
    client_slot* slot = slots_.find(id);
    if (inherited() || slot == nullptr) return status::invalid_state;
    const bool simple = slot->state == slot_state::taken && !slot->holds_response && !slot->owed;
    if (!simple) [[unlikely]]
        return release_other(*slot);
    slots_.put_free(*slot);
    return status::ok;
}

/// A call that was never submitted, whose response lies in memory of the link, or whose answer is still to
/// come.
[[gnu::noinline]] status channel_core::release_other(client_slot& slot) noexcept {
    if (slot.state == slot_state::begun) {
        slots_.put_free(slot);
        return status::ok;
    }
    if (slot.state != slot_state::taken) return status::invalid_state;
    if (slot.holds_response) consumed(slot);
    if (!slot.owed) {
        slots_.put_free(slot);
        return status::ok;
    }
    slot.state = slot_state::quarantined;
    ++statistics_.quarantined;
    return status::ok;
}

template <class Done>
void channel_core::spin_then_sleep(nanoseconds deadline, Done done) noexcept {
    const poll_mode mode = request_.options.poll;
    const nanoseconds start = now_;
    const nanoseconds spin_end = mode == poll_mode::busy ? deadline
                                 : mode == poll_mode::adaptive
                                     ? std::min(deadline, start + request_.options.spin)
                                     : start;
    spinner_.restart();
    while (!done() && now_ < deadline) {
        if (now_ < spin_end) {
            spinner_.turn();
        } else if (mode != poll_mode::busy &&
                   (state_ != state::connected || in_doubt() || connection_.events->arm())) {
            sleep(deadline);
        }
        completion_room none;
        progress(none);
    }
}

/// How a wait begins. One that goes to sleep anyway need not look first: `arm` does.
void channel_core::look(nanoseconds timeout) noexcept {
    const bool sleeps = request_.options.poll == poll_mode::block && state_ == state::connected;
    completion_room none;
    if (!sleeps || timeout <= nanoseconds{0}) return progress(none);
    now_ = now();
}

std::size_t channel_core::wait(std::span<completion> out, nanoseconds timeout) noexcept {
    if (inherited()) return 0;
    look(timeout);
    const nanoseconds deadline = timeout >= never - now_ ? never : now_ + timeout;
    spin_then_sleep(deadline, [this] {
        const bool nothing_to_come = state_ != state::connected && slots_.open() == 0 && !reconnector_;
        return slots_.ready() > 0 || nothing_to_come;
    });
    completion_room room{out.data(), out.size()};
    hand_out(room);
    const std::size_t count = out.size() - room.left;
    statistics_.completed += count;
    return count;
}

completion channel_core::wait_for(call_id id) noexcept {
    look(never);
    client_slot& slot = slots_[id.slot];
    spin_then_sleep(never, [&slot] { return slot.state == slot_state::done; });
    slots_.take_done(slot);
    ++statistics_.completed;
    return slot.content;
}

}  // namespace accel::core

/// The public calls of the data path, here so that each is one function with what it calls.
namespace accel {

status channel::begin(call_view& out) noexcept {
    return core::behind(core_, "channel").begin(out);
}
status channel::submit(call_id id, std::size_t length, const submit_options& options) noexcept {
    return core::behind(core_, "channel").submit(id, length, options);
}
status channel::submit(call_id id, slice payload, const submit_options& options) noexcept {
    return core::behind(core_, "channel").submit(id, payload, options);
}
status channel::cancel(call_id id) noexcept {
    return core::behind(core_, "channel").cancel(id);
}
std::size_t channel::poll(std::span<completion> out) noexcept {
    return core::behind(core_, "channel").poll(out);
}
std::size_t channel::wait(std::span<completion> out, std::chrono::nanoseconds timeout) noexcept {
    return core::behind(core_, "channel").wait(out, timeout);
}
status channel::release(call_id id) noexcept {
    return core::behind(core_, "channel").release(id);
}

}  // namespace accel
