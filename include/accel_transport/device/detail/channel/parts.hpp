// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/trace_extension.hpp>
#include <accel_transport/device/detail/channel/owned_slots.hpp>
#include <accel_transport/device/detail/channel/part_slots.hpp>
#include <accel_transport/device/detail/channel/shared_slots.hpp>

#include <cstddef>
#include <cstdint>

/// Responses in parts, at calling kernels. A call that takes n unread parts lends n slots: each goes to the server as
/// room for one part, comes back with it, and goes again when the part has been released. Parts are numbered: a
/// server's threads may send in another order than they count. Calls without parts come by none of these functions.
/// `Slots`: `shared_channel_slots` or `owned_channel_slots`.
namespace accel::device::detail {

ACCEL_HOST_DEVICE inline shared_channel_slots slots_of(const channel_ref& channel) noexcept {
    return {channel};
}
ACCEL_HOST_DEVICE inline owned_channel_slots slots_of(owned_channel& mine) noexcept {
    return {mine};
}

/// True: the call is in flight, and its response comes in parts.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_in_parts(const Slots& at, const call_ref& call) noexcept {
    const call_phase phase = at.phase(call.slot, call.generation);
    return phase == call_phase::in_parts || phase == call_phase::parts_arrived;
}

// Lending.

template <class Slots>
ACCEL_HOST_DEVICE inline void put_rooms_back(const Slots& at, parts_call& of) noexcept {
    while (of.rooms != 0) {
        const std::uint32_t slot = of.rooms - 1;
        const parts_room& room = at.of().parts[slot].room;
        of.rooms = room.next;
        at.put_free(slot, room.generation, call_phase::begun);
    }
}

/// Takes free slots for a call. False: too few are free, and none is taken.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline bool take_rooms(const Slots& at, const call_ref& call,
                                                       std::uint32_t wanted) noexcept {
    channel_part_slot* const parts = at.of().parts;
    parts_call& of = parts[call.slot].call;
    of = {};
    for (std::uint32_t i = 0; i < wanted; ++i) {
        parts_room room;
        const std::uint32_t slot = at.take(room.generation);
        if (slot == no_call) {
            put_rooms_back(at, of);
            return false;
        }
        room.call_slot = call.slot;
        room.call_generation = call.generation;
        room.next = of.rooms;
        parts[slot].room = room;
        of.rooms = slot + 1;
    }
    return true;
}

/// Sends a slot to the server as room for a part. There is room for it in the send queue.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status lend(const Slots& at, std::uint32_t slot) noexcept {
    const channel_ref& channel = at.of();
    const parts_room& room = channel.parts[slot].room;
    call_ref as;
    as.request = header_of(channel.requests, slot) + wire::header_bytes;
    as.slot = slot;
    as.generation = room.generation;
    as.deadline = never_ns;
    wire::slot_header header;
    header.flags = wire::header_flag::more;
    header.slot = slot;
    header.generation = room.generation;
    header.parts_call = room.call_slot | std::uint64_t{room.call_generation} << 32;
    header.response_room = static_cast<std::uint32_t>(channel.responses.capacity);
    header.deadline_ns = INT64_MAX;
    if (channel.plain_requests != 0) header.arrival_word = room.generation;
    store_header(header, as.request - wire::header_bytes);
    return at.post(as, 0, 0);
}

/// In front of the request, so that the server finds it.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status lend_rooms(const Slots& at, parts_call& of) noexcept {
    const channel_part_slot* const parts = at.of().parts;
    for (std::uint32_t next = of.rooms; next != 0; next = parts[next - 1].room.next) {
        if (!at.move(next - 1, parts[next - 1].room.generation, call_phase::begun, call_phase::lent))
            return status::invalid_state;
        ++of.lent;
        if (const status sent = lend(at, next - 1); sent != status::ok) return sent;
    }
    return status::ok;
}

/// The call has ended: the server gives back what it has, and what came is dropped.
template <class Slots>
ACCEL_HOST_DEVICE inline void leave_rooms(const Slots& at, parts_call& of) noexcept {
    while (of.rooms != 0) {
        const std::uint32_t slot = of.rooms - 1;
        const parts_room& room = at.of().parts[slot].room;
        of.rooms = room.next;
        if (room.has_part != 0)
            at.put_free(slot, room.generation, Slots::room_come);
        else if (at.phase(slot, room.generation) == call_phase::begun)
            at.put_free(slot, room.generation, call_phase::begun);
        else
            at.let_return(slot, room.generation);
    }
    of.lent = 0;
}

// Submitting.

/// Puts a trace in front of the header. Returns its length.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint16_t put_trace(const call_ref& call,
                                                               const trace_context* trace) noexcept {
    if (trace == nullptr || !wire::is_trace(*trace)) return 0;
    wire::trace_extension made;
    made.value = *trace;
    __builtin_memcpy(call.request - wire::header_bytes - sizeof made, &made, sizeof made);
    return sizeof made;
}

/// Adds to a header that has been written, and not sent.
ACCEL_HOST_DEVICE inline void mark_header(const call_ref& call, std::uint16_t flags,
                                          std::uint16_t extensions) noexcept {
    std::byte* const header = call.request - wire::header_bytes;
    __builtin_memcpy(header + offsetof(wire::slot_header, flags), &flags, sizeof flags);
    __builtin_memcpy(header + offsetof(wire::slot_header, extension_bytes), &extensions, sizeof extensions);
}

/// A request could not be sent, though there was room for it. A server that has its rooms would wait for it forever,
/// so the session ends with it.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status take_request_back(const Slots& at, const call_ref& call, call_phase phase,
                                                                status why) noexcept {
    if (phase == call_phase::in_parts) {
        if (at.end() == status::ok) at.fail(status::peer_lost);
        leave_rooms(at, at.of().parts[call.slot].call);
        why = at.end();
    }
    if (at.move(call.slot, call.generation, phase, call_phase::begun)) return why;
    at.fail(status::protocol_error);  // an answer without a request
    return status::peer_lost;
}

/// As far as it needs nothing of the channel.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status check_request(const Slots& at, const call_ref& call, std::uint64_t length,
                                                            const call_options& with) noexcept {
    if (at.phase(call.slot, call.generation) != call_phase::begun) return status::invalid_state;
    if (length > at.of().requests.capacity) return status::message_too_large;
    if (with.timeout_ns < 0 || with.part_timeout_ns < 0 || with.parts >= at.count()) return status::invalid_argument;
    return at.refusal();
}

/// A call in parts, or with a trace.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM status submit_with(const Slots at, call_ref& call, std::uint64_t length,
                                                          const call_options& with) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    constexpr std::uint32_t of_request = 3;  // extensions, payload and header
    const channel_ref& channel = at.of();
    if (const status wrong = check_request(at, call, length, with); wrong != status::ok) return wrong;
    const std::int64_t now = clock_ns();
    set_terms(channel, with, now, call);
    const std::int64_t until = call.deadline - now < patience_ns ? call.deadline : now + patience_ns;
    if (const status room = at.wait_for_room(with.parts + of_request, until); room != status::ok) return room;
    const bool in_parts = with.parts != 0;
    if (in_parts && !take_rooms(at, call, with.parts)) {
        at.look_for_free(now);
        if (!take_rooms(at, call, with.parts)) return status::again;
    }
    const call_phase phase = in_parts ? call_phase::in_parts : call_phase::in_flight;
    // Before posting: what comes back may arrive before this returns.
    if (!at.move(call.slot, call.generation, call_phase::begun, phase)) return status::invalid_state;
    write_header(channel, call, length, at.clock_offset());
    const std::uint16_t extensions = put_trace(call, with.trace);
    mark_header(call, in_parts ? wire::header_flag::parts : std::uint16_t{0}, extensions);
    status sent = status::ok;
    if (in_parts) {
        parts_call& of = channel.parts[call.slot].call;
        of.part_timeout_ns = with.part_timeout_ns;
        of.part_deadline = now + with.part_timeout_ns;
        sent = lend_rooms(at, of);
    }
    if (sent == status::ok) sent = at.post(call, length, extensions);
    if (sent != status::ok) return take_request_back(at, call, phase, sent);
    at.count_submitted();
    return status::ok;
}

// Arrivals.

/// Files a part by its number. False: no correct server sends this one.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool file_part(const channel_ref& channel, const parts_call& of,
                                                      const wire::slot_header& header, parts_room& room) noexcept {
    const std::uint32_t slots = channel.slots != 0 ? channel.slots : channel.exclusive.slots;
    const std::uint64_t number = header.parts_before;
    const bool in_turn = number - of.next < slots;  // one that has been handed out wraps around
    const bool sane = header.code == status::ok && header.length <= channel.responses.capacity && in_turn &&
                      (of.answered == 0 || number < of.last.parts_before);
    if (!sane) return false;
    for (std::uint32_t next = of.rooms; next != 0; next = channel.parts[next - 1].room.next) {
        const parts_room& other = channel.parts[next - 1].room;
        if (other.has_part != 0 && other.number == number) return false;
    }
    room.number = number;
    room.bytes = header.length;
    room.has_part = 1;
    return true;
}

/// Reads what has come back in a room, once. `ok`: a part; `cancelled`: none, and there will be none; `again`: not all
/// of it has been seen; `protocol_error`: no correct server sends it.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status read_room(const Slots& at, parts_call& of, std::uint32_t slot) noexcept {
    parts_room& room = at.of().parts[slot].room;
    wire::slot_header header;
    if (const status seen = at.read(slot, room.generation, header); seen != status::ok) return seen;
    const bool is_part = (header.flags & wire::header_flag::more) != 0;
    header.flags &= static_cast<std::uint16_t>(~wire::header_flag::more);
    const bool sane = wire::is_well_formed(header, wire::message_kind::response) && header.slot == slot &&
                      header.generation == room.generation;
    if (!sane) return status::protocol_error;
    --of.lent;
    if (is_part) return file_part(at.of(), of, header, room) ? status::ok : status::protocol_error;
    return header.code == status::cancelled && header.length == 0 ? status::cancelled : status::protocol_error;
}

/// The part whose turn it is belongs to the caller until its release.
template <class Slots>
ACCEL_HOST_DEVICE inline void hand_out(const Slots& at, parts_call& of, std::uint32_t slot, arrival_ref& out) noexcept {
    const parts_room& room = at.of().parts[slot].room;
    (void)at.move(slot, room.generation, Slots::room_come, call_phase::part);
    ++of.next;
    if (of.part_timeout_ns > 0) of.part_deadline = clock_ns() + of.part_timeout_ns;
    out.response = header_of(at.of().responses, slot) + wire::header_bytes;
    out.response_bytes = room.bytes;
    out.more = true;
    out.slot = slot;
    out.generation = room.generation;
}

/// Looks at the rooms of a call. `ok`: `out` is its next part; `again`: that has not come; `protocol_error`.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status next_part_of(const Slots& at, parts_call& of, arrival_ref& out) noexcept {
    channel_part_slot* const parts = at.of().parts;
    for (std::uint32_t* link = &of.rooms; *link != 0;) {
        const std::uint32_t slot = *link - 1;
        parts_room& room = parts[slot].room;
        if (room.has_part == 0 && at.has_come(slot, room.generation)) {
            const status seen = read_room(at, of, slot);
            if (seen == status::protocol_error) return seen;
            if (seen == status::cancelled) {
                *link = room.next;
                at.put_free(slot, room.generation, Slots::room_come);
                continue;
            }
        }
        if (room.has_part != 0 && room.number == of.next) {
            *link = room.next;
            hand_out(at, of, slot, out);
            return status::ok;
        }
        link = &room.next;
    }
    return status::again;
}

/// Reads the response that ends the parts, once. It waits for parts that have not been handed out.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status read_last(const Slots& at, const call_ref& call,
                                                        parts_call& of) noexcept {
    const channel_ref& channel = at.of();
    wire::slot_header header;
    if (const status seen = at.read(call.slot, call.generation, header); seen != status::ok) return seen;
    std::uint64_t arriving = 0;
    std::uint64_t least = of.next;  // so many have come, or are counted by one that has
    for (std::uint32_t next = of.rooms; next != 0; next = channel.parts[next - 1].room.next) {
        const parts_room& room = channel.parts[next - 1].room;
        ++arriving;
        if (room.has_part != 0 && room.number >= least) least = room.number + 1;
    }
    const std::uint64_t sent = header.parts_before;
    if (!is_answer(channel, call, header) || sent < least || sent - of.next > arriving) return status::protocol_error;
    of.last = header;
    of.answered = 1;
    return status::ok;
}

// Ending.

template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status end_in_parts(const Slots& at, call_ref& call, parts_call& of) noexcept {
    leave_rooms(at, of);
    set_response(header_of(at.of().responses, call.slot), of.last, call);
    at.count_completed();
    (void)at.move(call.slot, call.generation, Slots::last_come, call_phase::ended);
    return call.outcome;
}

/// Before the response that ends it, or in spite of it.
template <class Slots>
ACCEL_HOST_DEVICE inline status end_parts_early(const Slots& at, call_ref& call, parts_call& of, status why) noexcept {
    leave_rooms(at, of);
    const call_phase left = of.answered != 0 ? call_phase::ended : call_phase::overdue;
    if (!at.move(call.slot, call.generation, call_phase::in_parts, left))
        (void)at.move(call.slot, call.generation, call_phase::parts_arrived, call_phase::ended);
    call.outcome = why;
    at.count_ended_early();
    return why;
}

template <class Slots>
ACCEL_HOST_DEVICE inline status refuse_parts(const Slots& at, call_ref& call, parts_call& of) noexcept {
    at.fail(status::protocol_error);
    return end_parts_early(at, call, of, status::peer_lost);
}

/// Ends the call if it is time; else `again`. `over`: of the session, before the look at what has come. The server does
/// not know the deadline between two parts.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE inline status expire(const Slots& at, call_ref& call, parts_call& of, std::int64_t now,
                                                     status over) noexcept {
    if (over != status::ok) return end_parts_early(at, call, of, over);
    const bool runs = of.part_timeout_ns > 0 && of.lent > 0 && of.answered == 0;
    const bool late = now >= call.deadline;
    if (!late && !(runs && now >= of.part_deadline)) return status::again;
    const bool server_waits = of.answered == 0 && (!late || is_deadline_untold(call));
    (void)end_parts_early(at, call, of, status::timed_out);
    if (server_waits) at.tell_cancelled(call);
    return status::timed_out;
}

/// One look at a call in parts, without waiting.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM status poll_parts(const Slots at, call_ref& call, arrival_ref& out) noexcept {
    parts_call& of = at.of().parts[call.slot].call;
    const status over = at.end();  // before the look at what has come
    if (of.answered == 0 && at.has_last(call) && read_last(at, call, of) == status::protocol_error)
        return refuse_parts(at, call, of);
    const std::int64_t now = clock_ns();
    // A server that always has a part does not outlive the deadline.
    if (of.answered == 0 && now >= call.deadline) return expire(at, call, of, now, over);
    const status found = next_part_of(at, of, out);
    if (found == status::protocol_error) return refuse_parts(at, call, of);
    if (found == status::ok) return found;
    if (of.answered != 0 && of.next == of.last.parts_before) return end_in_parts(at, call, of);
    return expire(at, call, of, now, over);
}

/// The next part of a call's response, or its end. `again`: neither is there.
template <class Channel>
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM status poll_arrival(Channel& channel, call_ref& call,
                                                           arrival_ref& out) noexcept {
    const auto at = slots_of(channel);
    out = {};
    status found = status::again;
    if (!is_in_parts(at, call)) {
        found = poll_call(channel, call);
    } else {
        found = poll_parts(at, call, out);
        if (found == status::again) {
            at.look(clock_ns());
            found = poll_parts(at, call, out);
        }
    }
    if (out.more) return found;
    out.slot = call.slot;
    out.generation = call.generation;
    if (found == status::again || found == status::invalid_state) return found;
    out.response = call.response;
    out.response_bytes = call.response_bytes;
    return found;
}

template <class Channel>
[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_for_arrival(Channel& channel, call_ref& call, arrival_ref& out,
                                                               std::int64_t timeout_ns) noexcept {
    for (const std::int64_t start = clock_ns();;) {
        const status found = poll_arrival(channel, call, out);
        if (found != status::again || clock_ns() - start >= timeout_ns) return found;
    }
}

/// The slot of a part is lent again while its call goes on, else free. `again`: the send queue stayed full.
template <class Slots>
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM status release_part(const Slots at, const arrival_ref& part) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    parts_room& room = at.of().parts[part.slot].room;
    parts_call& of = at.of().parts[room.call_slot].call;
    const bool open = at.phase(room.call_slot, room.call_generation) == call_phase::in_parts && of.answered == 0;
    const status queue = open ? at.wait_for_room(1, clock_ns() + patience_ns) : status::closed;
    if (queue == status::again) return queue;
    if (queue != status::ok) {
        at.put_free(part.slot, part.generation, call_phase::part);
        return status::ok;
    }
    room.generation = at.renew(part.slot, part.generation);
    room.has_part = 0;
    room.next = of.rooms;
    of.rooms = part.slot + 1;
    if (of.lent++ == 0) of.part_deadline = clock_ns() + of.part_timeout_ns;
    if (lend(at, part.slot) != status::ok && at.end() == status::ok) at.fail(status::peer_lost);
    return status::ok;
}

template <class Channel>
ACCEL_HOST_DEVICE inline status release_arrival(Channel& channel, const arrival_ref& arrival) noexcept {
    const auto at = slots_of(channel);
    if (at.phase(arrival.slot, arrival.generation) == call_phase::part) return release_part(at, arrival);
    call_ref ended;
    ended.slot = arrival.slot;
    ended.generation = arrival.generation;
    return release_call(channel, ended);
}

template <class Slots>
ACCEL_HOST_DEVICE inline status cancel_parts(const Slots at, call_ref& call) noexcept {
    if (!is_in_parts(at, call)) return status::invalid_state;
    parts_call& of = at.of().parts[call.slot].call;
    (void)end_parts_early(at, call, of, status::cancelled);
    if (of.answered == 0) at.tell_cancelled(call);
    return status::ok;
}

// Calls that may be in parts.

[[nodiscard]] ACCEL_HOST_DEVICE inline status submit_any(const channel_ref& channel, call_ref& call,
                                                         std::uint64_t length, const call_options& with) noexcept {
    if (with.parts != 0 || with.trace != nullptr) [[unlikely]]
        return submit_with(slots_of(channel), call, length, with);
    return submit_call(channel, call, length, with);
}
[[nodiscard]] ACCEL_HOST_DEVICE inline status submit_any(owned_channel& mine, call_ref& call, std::uint64_t length,
                                                         const call_options& with) noexcept {
    if (with.parts != 0 || with.trace != nullptr) [[unlikely]]
        return is_shared(mine) ? submit_with(slots_of(mine.channel), call, length, with)
                               : submit_with(slots_of(mine), call, length, with);
    return submit_call(mine, call, length, with);
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_any(const channel_ref& channel, call_ref& call, arrival_ref& out,
                                                       std::int64_t timeout_ns) noexcept {
    return wait_for_arrival(channel, call, out, timeout_ns);
}
[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_any(owned_channel& mine, call_ref& call, arrival_ref& out,
                                                       std::int64_t timeout_ns) noexcept {
    const channel_ref& shared = mine.channel;
    return is_shared(mine) ? wait_for_arrival(shared, call, out, timeout_ns)
                           : wait_for_arrival(mine, call, out, timeout_ns);
}

ACCEL_HOST_DEVICE inline status release_any(const channel_ref& channel, const arrival_ref& arrival) noexcept {
    return release_arrival(channel, arrival);
}
ACCEL_HOST_DEVICE inline status release_any(owned_channel& mine, const arrival_ref& arrival) noexcept {
    const channel_ref& shared = mine.channel;
    return is_shared(mine) ? release_arrival(shared, arrival) : release_arrival(mine, arrival);
}

ACCEL_HOST_DEVICE inline status cancel_any(const channel_ref& channel, call_ref& call) noexcept {
    const status found = cancel_call(channel, call);
    return found == status::ok ? found : cancel_parts(slots_of(channel), call);
}
ACCEL_HOST_DEVICE inline status cancel_any(owned_channel& mine, call_ref& call) noexcept {
    if (is_shared(mine)) return cancel_any(mine.channel, call);
    const status found = cancel_call(mine, call);
    return found == status::ok ? found : cancel_parts(slots_of(mine), call);
}

}  // namespace accel::device::detail
