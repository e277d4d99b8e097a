// SPDX-License-Identifier: Apache-2.0
#include "core/internals.hpp"
#include "core/metadata_description.hpp"
#include "core/server/worker.hpp"
#include "core/this_thread.hpp"
#include "staging/staged_exchanges.hpp"

#include <algorithm>

/// A request's way from its arrival to the handler, and what the handler asks of it. No step of the way allocates,
/// locks or logs.
namespace accel::core {

// The round.

worker::round_scope::round_scope(worker& own) noexcept : own_(own), outer_(own.round_.load(std::memory_order_relaxed)) {
    own.round_.store(this_thread(), std::memory_order_relaxed);
}

worker::round_scope::~round_scope() {
    own_.round_.store(outer_, std::memory_order_release);
}

std::size_t worker::progress() noexcept {
    const round_scope inside(*this);
    if (commands_.pending()) run_commands();
    std::size_t total = 0;
    if (any_posted()) [[unlikely]] {  // answers of other threads do not wait for the round
        send_posted();
        total = 1;
    }
    for (const auto& source : sources_) {
        const std::size_t got = source->poll(events_);
        if (got == 0) continue;
        now_ = polled_at_ = clock_.now();
        total += got;
        const link_event* event = events_.data();
        const link_event* const end = event + got;
        do on_event(*event);
        while (++event != end);
    }
    const bool unfinished = any_posted() || !waiting_.empty() || staging_ != nullptr;
    if (unfinished && follow_up(total)) [[unlikely]]
        ++total;
    // A part that was posted in this round belongs to a session, too.
    if (sessions_.any_closing() && !any_posted(std::memory_order_seq_cst)) sessions_.settle(observer_);
    return total;
}

[[gnu::always_inline]] inline void worker::on_event(const link_event& event) noexcept {
    auto& from = *static_cast<session*>(event.owner);
    if (from.cancels().any()) [[unlikely]]
        return on_unusual_event(from, event);
    serve_event(from, event);
}

/// For a client that is gone or has cancelled calls. A request that was cancelled on its way is refused as one that is
/// too late.
[[gnu::noinline]] void worker::on_unusual_event(session& from, const link_event& event) noexcept {
    if (from.gone()) return;
    const bool further = (event.header.flags & (header_flag::more | header_flag::part)) != 0;  // of another call
    const bool request = event.kind == event_kind::arrived && !further;
    if (!request || !from.cancels().cancelled({event.header.slot, event.header.generation}))
        return serve_event(from, event);
    link_event late = event;
    late.header.deadline_ns = 0;
    serve_event(from, late);
}

[[gnu::always_inline]] inline void worker::serve_event(session& from, const link_event& event) noexcept {
    if (event.kind == event_kind::arrived) [[likely]] {
        if (!on_request(from, event)) [[unlikely]]
            lose(from, status::protocol_error);
        return;
    }
    if (event.kind == event_kind::lost) return lose(from, event.reason);
    from.end_lease(event.header.slot);
}

/// False: its client broke the protocol.
[[gnu::always_inline]] inline bool worker::on_request(session& from, const link_event& event) noexcept {
    exchange_state* admitted = from.admit(event);
    if (admitted == nullptr) [[unlikely]]
        return on_unusual_request(from, event);
    dispatch(*admitted, event.header.target);
    return true;
}

inline exchange_state* session::admit(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_plain(header, message_kind::request) && header.slot < geometry_.slots &&
                      header.length <= geometry_.request_bytes && event.payload.size() == header.length &&
                      header.response_room <= geometry_.response_bytes;
    if (!sane) [[unlikely]]
        return nullptr;
    exchange_state& exchange = exchanges_[header.slot];
    // A slot is reused only after its answer, with another generation.
    if (exchange.phase != exchange_phase::idle || exchange.generation == header.generation) [[unlikely]]
        return nullptr;

    exchange.phase = exchange_phase::open;
    static_assert(exchange_extra::borrowed == 1);
    exchange.extras = static_cast<std::uint8_t>(event.borrowed);
    exchange.generation = header.generation;
    exchange.trace_id = header.trace_id;
    exchange.deadline = nanoseconds{header.deadline_ns};
    exchange.request = event.payload;
    std::span<std::byte> room{exchange.header + header_bytes, answer_bytes_};
    if (!event.response_room.empty()) [[unlikely]]
        room = event.response_room;
    exchange.response_room = room.first(std::min<std::size_t>(room.size(), header.response_room));
    exchange.answer = {};
    ++open_;
    return &exchange;
}

[[gnu::always_inline]] inline void worker::dispatch(exchange_state& request, std::uint32_t target) noexcept {
    const std::uint32_t open = open_.load(std::memory_order_relaxed) + 1;
    open_.store(open, std::memory_order_relaxed);
    const nanoseconds at = now_;
    request.arrival = polled_at_;
    request.handler_start = at;
    const bool too_many = open > max_open_.load(std::memory_order_relaxed);
    if (too_many || request.deadline <= at) [[unlikely]]
        refuse_at_once(request, target, too_many);
    else if (target != 0) [[unlikely]]
        serve_target(request, target);
    else if (request.device != nullptr) [[unlikely]]
        serve_on_device(request, service_);
    else
        call_handler(request, service_);
}

[[gnu::always_inline]] inline void worker::call_handler(exchange_state& request, const handler& service) noexcept {
    counters_.requests.add();
    hold();
    const nanoseconds before = now_;
    try {
        service(internals::make_exchange(&request));
    } catch (...) {
        on_exception(request);
    }
    if (now_ == before) now_ = clock_.now();  // else `send_to` has just read it
}

// Requests with a target, or on a device.

[[gnu::noinline]] void worker::serve_target(exchange_state& request, std::uint32_t number) noexcept {
    served_target* const found = find_target(request, number);
    if (found == nullptr) {
        counters_.not_found.add();
        request.answer.application_code = unseen_code;
        // On a device, the room for a text is made with the exchange.
        return refuse(request, status::not_found, request.device == nullptr ? targets_.names() : std::string_view{});
    }
    request.target = found;
    target_table::hold(*found);
    const std::uint8_t ends = request.ends.load(std::memory_order_relaxed);
    request.ends.store(ends | exchange_end::targeted, std::memory_order_relaxed);
    if (request.device != nullptr) return serve_on_device(request, found->service);
    call_target(request);
}

/// The handler goes on after its answer, and its target may be removed meanwhile.
void worker::call_target(exchange_state& request) noexcept {
    served_target& called = *request.target;
    target_table::hold(called);
    call_handler(request, called.service);
    targets_.release(called);
}

/// Null: there is none. Once for each request, which counts there from now on.
served_target* worker::find_target(exchange_state& request, std::uint32_t number) noexcept {
    served_target* const found = targets_.find(number);
    if (request.counts != nullptr) {
        scheme_series& series = *request.owner->series();
        request.counts = found != nullptr ? &series.of_target(found->place) : &series.unknown;
        request.answer.counts_apart = true;
    }
    return found;
}

[[gnu::noinline]] void worker::serve_on_device(exchange_state& request, const handler& service) noexcept {
    request.service = &service;
    staging_->serve(request);
}

void worker::end_queueing(exchange_state& request) noexcept {
    request.handler_start = now_ = clock_.now();
}

void worker::serve_brought(exchange_state& request) noexcept {
    const bool targeted = (request.ends.load(std::memory_order_relaxed) & exchange_end::targeted) != 0;
    targeted ? call_target(request) : call_handler(request, *request.service);
}

// Requests that no handler sees.

/// It counts as one of its target's.
[[gnu::noinline]] void worker::refuse_at_once(exchange_state& request, std::uint32_t target, bool too_many) noexcept {
    if (target != 0) (void)find_target(request, target);
    refuse_late_or_too_many(request, too_many);
}

[[gnu::noinline]] void worker::refuse_late_or_too_many(exchange_state& request, bool too_many) noexcept {
    if (leaving_ || request.owner->cancels().ended()) return ignore(request);
    const bool cancelled = request.owner->cancels().cancelled({request.slot, request.generation});
    if (!cancelled && max_open_.load(std::memory_order_relaxed) == 0) {
        counters_.overloaded.add();
        request.answer.application_code = unseen_code;
        return refuse(request, status::closed);
    }
    (cancelled ? counters_.cancelled : too_many ? counters_.overloaded : counters_.expired).add();
    refuse(request, cancelled ? status::cancelled : too_many ? status::overloaded : status::timed_out);
}

void worker::refuse(exchange_state& request, status why, std::string_view text) noexcept {
    request.answer.fail(why);
    request.payload = {};
    if (!text.empty()) write_failure(request, text);
    send(request);
}

// Requests with extensions or in parts, requests whose response may come in parts, and room for those.

/// False: a correct client sends no such message.
[[gnu::noinline]] bool worker::on_unusual_request(session& from, const link_event& event) noexcept {
    const std::uint16_t flags = event.header.flags & header_flag::of_parts;
    if ((flags & (header_flag::more | header_flag::part)) != 0) {
        exchange_state* returned = nullptr;
        const bool taken = from.take_further(event, now_, returned);
        if (returned != nullptr) send_part(*returned);
        return taken;
    }
    exchange_state* const admitted = flags != 0 ? from.admit_in_parts(event) : from.admit_extended(event);
    if (admitted == nullptr) return false;
    dispatch(*admitted, event.header.target);
    return true;
}

/// The request ends where its metadata begins, if metadata follows it.
exchange_state* session::admit_extended(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_well_formed(header, message_kind::request) && header.slot < geometry_.slots &&
                      event.payload.size() <= geometry_.request_bytes;
    if (!sane) return nullptr;
    std::uint16_t bytes = 0;
    if (header.extension_bytes != 0)
        bytes = metadata_after(path_->receive().header(header.slot), header.generation, event.payload.size());
    link_event plain = event;
    plain.header.code = status::ok;
    plain.header.extension_bytes = 0;
    plain.header.length -= bytes;
    plain.payload = plain.payload.first(plain.payload.size() - bytes);
    exchange_state* const admitted = admit(plain);
    if (admitted == nullptr || bytes == 0) return admitted;
    admitted->metadata_bytes = bytes;
    admitted->extras |= exchange_extra::metadata;
    return admitted;
}

exchange_state* session::admit_in_parts(const link_event& event) noexcept {
    const slot_header& header = event.header;
    const bool in_parts = (header.flags & header_flag::parts) != 0;
    const bool continues = (header.flags & header_flag::continues) != 0;
    const bool sane = is_of_parts(header, message_kind::request) && header.slot < geometry_.slots &&
                      exchanges_[header.slot].phase == exchange_phase::idle &&
                      (!in_parts || start_parts(header.slot, header.generation)) &&
                      (!continues || start_inbox(header.slot, header.generation));
    if (!sane) return nullptr;
    link_event plain = event;
    plain.header = without_parts(header);
    exchange_state* const admitted = admit_extended(plain);
    if (admitted == nullptr) return nullptr;
    admitted->extras |= static_cast<std::uint8_t>((in_parts ? exchange_extra::in_parts : 0) |
                                                  (continues ? exchange_extra::continues : 0));
    admitted->ends.store(
        static_cast<std::uint8_t>((in_parts ? exchange_end::in_parts : 0) | (continues ? exchange_end::continues : 0)),
        std::memory_order_relaxed);
    return admitted;
}

/// The room of a call may arrive before it. False: there is room of another one, which never came.
bool session::start_parts(std::uint32_t slot, std::uint32_t generation) noexcept {
    part_credits& parts = parts_[slot];
    if (generation == 0) return false;
    if (parts.generation() == generation) return true;
    if (!parts.empty()) return false;
    parts.start(generation);
    return true;
}

/// The same for parts of a request.
bool session::start_inbox(std::uint32_t slot, std::uint32_t generation) noexcept {
    part_inbox& inbox = inboxes_[slot];
    if (generation == 0) return false;
    if (inbox.generation() == generation) return true;
    if (inbox.generation() != 0) return false;
    inbox.start(generation);
    return true;
}

/// Messages of a call that has ended may arrive after those of the slot's later calls.
session::call_state session::state_of(std::uint32_t slot, std::uint32_t generation) const noexcept {
    const exchange_state& call = exchanges_[slot];
    const bool idle = call.phase == exchange_phase::idle;
    if (call.generation == generation)
        return idle ? call_state::ended : call.phase == exchange_phase::open ? call_state::open : call_state::wrong;
    const bool later = call.generation == 0 || static_cast<std::int32_t>(generation - call.generation) > 0;
    if (!later) return call_state::ended;
    return idle ? call_state::early : call_state::wrong;
}

/// A further slot of a call is a request that is answered by a part of the call's response, or given back: room when
/// its call has its answer, a part of a request when its handler has released it.
bool session::take_further(const link_event& event, nanoseconds at, exchange_state*& returned) noexcept {
    const slot_header& header = event.header;
    const bool sane = is_of_parts(header, message_kind::request) && header.slot < geometry_.slots &&
                      event.payload.size() == header.length && header.length <= geometry_.request_bytes &&
                      header.response_room <= geometry_.response_bytes;
    const auto call = static_cast<std::uint32_t>(header.parts_call);
    const auto generation = static_cast<std::uint32_t>(header.parts_call >> 32);
    if (!sane || call >= geometry_.slots || call == header.slot || generation == 0) return false;
    exchange_state& taken = exchanges_[header.slot];
    if (taken.phase != exchange_phase::idle || taken.generation == header.generation) return false;
    const call_state is = state_of(call, generation);
    if (is == call_state::wrong) return false;

    const bool part = (header.flags & header_flag::part) != 0;
    taken.phase = part ? exchange_phase::part : exchange_phase::room;
    taken.extras = static_cast<std::uint8_t>(exchange_extra::further | static_cast<std::uint8_t>(event.borrowed));
    taken.generation = header.generation;
    taken.trace_id = 0;
    taken.arrival = taken.handler_start = at;
    taken.request = {};
    taken.response_room = {};
    taken.payload = {};
    taken.answer = {};
    if (is == call_state::ended) {
        taken.extras |= exchange_extra::returned;
        returned = &taken;
        return true;
    }
    const bool starts = part ? start_inbox(call, generation) : start_parts(call, generation);
    return starts && (part ? add_part(taken, event, call, is) : add_room(taken, event, call, is));
}

/// False: the open call takes no parts. Room that came before its request may have named such a call.
bool session::add_room(exchange_state& room, const link_event& event, std::uint32_t call, call_state is) noexcept {
    const std::uint8_t ends = exchanges_[call].ends.load(std::memory_order_relaxed);
    if (is == call_state::open && (ends & exchange_end::in_parts) == 0) return false;
    room.response_room = part_room(room.slot).first(std::min<std::size_t>(answer_bytes_, event.header.response_room));
    parts_[call].add(room);
    return true;
}

/// False: the open call has no such part.
bool session::add_part(exchange_state& part, const link_event& event, std::uint32_t call, call_state is) noexcept {
    const std::uint8_t ends = exchanges_[call].ends.load(std::memory_order_relaxed);
    if (is == call_state::open && (ends & exchange_end::continues) == 0) return false;
    const bool last = (event.header.flags & header_flag::continues) == 0;
    if (!last) part.extras |= exchange_extra::continues;
    part.request = event.payload;
    part.response_room = {};
    return inboxes_[call].add(part, event.header.request_parts_before, last, geometry_.slots);
}

/// Where the transport takes a part of a response from.
std::span<std::byte> session::part_room(std::uint32_t slot) const noexcept {
    const slot_memory& answers = path_->send();
    return answers.split() ? answers.room(slot) : std::span{answers.header(slot) + header_bytes, answer_bytes_};
}

}  // namespace accel::core

namespace accel {

std::span<const std::byte> exchange::request() const noexcept {
    const core::exchange_state& state = core::open_state(state_);
    const core::own_memory* own = state.own.load(std::memory_order_acquire);
    return own == nullptr ? state.request : own->request;
}

}  // namespace accel
