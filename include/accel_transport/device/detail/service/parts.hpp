// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/service/answers.hpp>

#include <cstddef>
#include <cstdint>

/// Responses in parts of a service whose sessions are shared: any thread may find a room, one has the call. A room is a
/// request without bytes that keeps its slot busy; its one answer is the part, or says that there will be none.
namespace accel::device::detail {

/// Where the answer of a room leaves from.
ACCEL_HOST_DEVICE inline void prepare_room(const service_ref& service, std::uint32_t session, std::uint32_t slot,
                                           exchange_ref& out) noexcept {
    const session_entry& of = service.sessions[session];
    prepare_answer(service, of, slot, out);
    if (engine_of(service) == engine::direct) out.seen = mlx5::snapshot_of(of.sends.direct);
    out.session = session;
    out.slot = slot;
    out.generation = load_relaxed(&of.generations[slot]);
}

/// The client gets a room back without a part. If it has gone, its slots are of no more use.
ACCEL_HOST_DEVICE_SELDOM inline void return_room(const service_ref& service, std::uint32_t session,
                                                 std::uint32_t slot) noexcept {
    if (!is_open(service.sessions[session])) return;
    const answer nothing{status::cancelled, 0, 0};
    exchange_ref room;
    prepare_room(service, session, slot, room);
    room.arrival = clock_ns();
    write_header(fields_of(room), nothing, room.peer.plain != 0);
    (void)send_off(service, room, nothing, bytes_in_slot(room));
}

/// A room has arrived, whose header was read once. False: no correct client sends it.
ACCEL_HOST_DEVICE_SELDOM inline bool file_room(const service_ref& service, const ready_entry& arrived,
                                               const wire::slot_header& header) noexcept {
    session_entry& session = service.sessions[arrived.session];
    lent_room room;
    if (!read_room(header, arrived.slot, session.is.slots, session.is.responses.capacity, room)) return false;
    store_relaxed(&session.generations[arrived.slot], header.generation);
    part_slot& own = session.parts[arrived.slot];
    own.bytes = room.bytes;
    std::uint64_t* const rooms = &session.parts[room.call_slot].rooms;
    const std::uint32_t* const newest = &session.generations[room.call_slot];
    for (;;) {
        // Read first: a call that begins meanwhile opens its rooms before it stores its generation.
        const std::uint32_t last = load_acquire(newest);
        std::uint64_t word = load_acquire(rooms);
        const part_rooms seen = rooms_of(word);
        const room_use use = use_of(seen, room.call_generation, last);
        if (use != room_use::kept && load_acquire(newest) != last) continue;
        if (use == room_use::returned) return_room(service, arrived.session, arrived.slot);
        if (use != room_use::kept) return use == room_use::returned;
        own.next = seen.first;
        if (hand_over(rooms, word, word_of(with_room(seen, room.call_generation, arrived.slot)))) return true;
    }
}

/// A part of a request, whose call is refused, goes back at once. False: no correct client sends it.
ACCEL_HOST_DEVICE_SELDOM inline bool return_part(const service_ref& service, const ready_entry& arrived,
                                                 const wire::slot_header& header) noexcept {
    session_entry& session = service.sessions[arrived.session];
    wire::slot_header plain = header;
    plain.flags &= static_cast<std::uint16_t>(~wire::header_flag::of_parts);
    const bool sane = is_sane_part(header) &&
                      is_sane(session.is.requests.capacity, session.is.responses.capacity, arrived.slot, plain);
    if (!sane) return false;
    store_relaxed(&session.generations[arrived.slot], header.generation);
    return_room(service, arrived.session, arrived.slot);
    return true;
}

/// A request that comes in parts, or whose response may. False: no correct client sends it.
ACCEL_HOST_DEVICE_SELDOM inline bool begin_parts(const service_ref& service, const ready_entry& arrived,
                                                 const wire::slot_header& header, exchange_ref& out) noexcept {
    session_entry& session = service.sessions[arrived.session];
    constexpr std::uint16_t flags = wire::header_flag::parts | wire::header_flag::continues;
    wire::slot_header plain = header;
    plain.flags &= static_cast<std::uint16_t>(~flags);
    const bool sane = plain.flags != header.flags && header.generation != 0 &&
                      is_sane(session.is.requests.capacity, session.is.responses.capacity, arrived.slot, plain);
    if (!sane) return false;
    if ((header.flags & wire::header_flag::parts) == 0) return true;
    part_slot& call = session.parts[arrived.slot];
    call.sent = 0;
    call.named = 0;
    for (std::uint64_t word = load_acquire(&call.rooms);;) {
        part_rooms begun;
        if (!begin_call(rooms_of(word), header.generation, begun)) return false;
        if (!hand_over(&call.rooms, word, word_of(begun))) continue;
        store_release(&session.generations[arrived.slot], header.generation);  // who reads it sees the open call
        out.parts = session.parts;
        return true;
    }
}

/// The room lent last, plus 1; 0: there is none. Only one thread takes, so that a head which has not changed still has
/// the same next one.
ACCEL_HOST_DEVICE inline std::uint32_t take_room(part_slot* parts, std::uint32_t slot) noexcept {
    std::uint64_t* const rooms = &parts[slot].rooms;
    for (std::uint64_t word = load_acquire(rooms);;) {
        part_rooms seen = rooms_of(word);
        const std::uint32_t taken = seen.first;
        if (taken == 0) return 0;
        seen.first = parts[taken - 1].next;
        if (hand_over(rooms, word, word_of(seen))) return taken;
    }
}

/// No room of the call is kept from now on. Returns the first of those that are left.
ACCEL_HOST_DEVICE inline std::uint32_t end_rooms(part_slot& call) noexcept {
    for (std::uint64_t word = load_acquire(&call.rooms);;) {
        const part_rooms seen = rooms_of(word);
        if (hand_over(&call.rooms, word, word_of({seen.generation, parts_phase::ended, 0}))) return seen.first;
    }
}

/// Ends an exchange in parts. The rooms end before the answer leaves, for the client's next call may be here before
/// this returns.
ACCEL_HOST_DEVICE_SELDOM inline status end_parts(const service_ref& service, const exchange_ref& exchange,
                                                 const answer& with) noexcept {
    part_slot* const parts = exchange.parts;
    part_slot& call = parts[exchange.slot];
    exchange_ref last = exchange;
    last.trace_id = call.sent;  // lies where the count is told
    std::uint32_t left = end_rooms(call);
    if (const std::uint32_t named = call.named; named != 0) {
        parts[named - 1].next = left;
        left = named;
    }
    const status sent = post_answer(service, last, with);
    while (left != 0) {
        const std::uint32_t slot = left - 1;
        left = parts[slot].next;
        return_room(service, exchange.session, slot);
    }
    finish_exchange(service.sessions[exchange.session]);
    return sent;
}

/// An arrival that has not been taken is a room: reads its header, once it can be seen. Under the lock.
ACCEL_HOST_DEVICE inline bool has_room_arrived(const service_ref& service, const ready_entry& arrived,
                                               wire::slot_header& out) noexcept {
    const session_entry& session = service.sessions[arrived.session];
    if (!is_open(session)) return false;
    const std::uint32_t last = load_relaxed(&session.generations[arrived.slot]);
    return await_header(header_of(session.is.requests, arrived.slot), last, false, out) && is_room(out);
}

/// Takes the first room among the arrivals that have not been taken. Requests among them stay in their order. Under the
/// lock.
ACCEL_HOST_DEVICE inline bool pick_room(const service_ref& service, ready_entry& out,
                                        wire::slot_header& header) noexcept {
    service_state& state = *service.state;
    const std::uint32_t mask = service.ready_mask;
    while (state.ready_seen != state.ready_tail) {
        const std::uint32_t at = state.ready_seen++;
        out = service.ready[at & mask];
        if (!has_room_arrived(service, out, header)) continue;
        for (std::uint32_t i = at; i != state.ready_head; --i) service.ready[i & mask] = service.ready[(i - 1) & mask];
        ++state.ready_head;
        return true;
    }
    return false;
}

/// A thread that sends parts may be the only one there is: it looks for rooms itself.
ACCEL_HOST_DEVICE_SELDOM inline void look_for_rooms(const service_ref& service) noexcept {
    service_state& state = *service.state;
    if (!try_lock(&state.lock)) return pause();
    if (clock_ns() - state.last_look > max_between_commands_ns) take_commands(service);
    ready_entry arrived;
    bool took = false;
    if (next_arrival(service, arrived, took)) service.ready[state.ready_tail++ & service.ready_mask] = arrived;
    if (!took) {
        give_back(service);
        publish_taken(service.completions);
    }
    wire::slot_header header;
    const bool found = pick_room(service, arrived, header);
    unlock(&state.lock);
    if (!found) return;
    if (!file_room(service, arrived, header)) fail_session(service, arrived.session, status::protocol_error);
    finish_exchange(service.sessions[arrived.session]);
}

/// Room for the next part; it stays the next until a part is sent. By the thread that has the exchange.
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM inline status name_part(const service_ref& service, const exchange_ref& exchange,
                                                               part_ref& out) noexcept {
    part_slot* const parts = exchange.parts;
    if (parts == nullptr) return status::unsupported;
    const session_entry& session = service.sessions[exchange.session];
    if (!is_open(session)) return status::peer_lost;
    part_slot& call = parts[exchange.slot];
    if (call.named == 0) call.named = take_room(parts, exchange.slot);
    if (call.named == 0) {
        look_for_rooms(service);
        call.named = take_room(parts, exchange.slot);
    }
    if (call.named == 0) return status::again;
    const std::uint32_t slot = call.named - 1;
    out.bytes = header_of(session.is.responses, slot) + wire::header_bytes;
    out.room = parts[slot].bytes;
    return status::ok;
}

/// Sends what was written there. By the same thread.
ACCEL_HOST_DEVICE_SELDOM inline status send_part(const service_ref& service, const exchange_ref& exchange,
                                                 std::uint64_t length) noexcept {
    part_slot* const parts = exchange.parts;
    if (parts == nullptr) return status::unsupported;
    part_slot& call = parts[exchange.slot];
    if (!is_open(service.sessions[exchange.session])) return status::peer_lost;
    if (call.named == 0) return status::again;
    const std::uint32_t slot = call.named - 1;
    if (length > parts[slot].bytes) return status::message_too_large;
    call.named = 0;
    exchange_ref part;
    prepare_room(service, exchange.session, slot, part);
    part.arrival = exchange.arrival;
    part.trace_id = call.sent++;  // lies where a part has its number
    const answer with{status::ok, 0, length, wire::header_flag::more};
    write_header(fields_of(part), with, part.peer.plain != 0);
    return send_off(service, part, with, bytes_in_slot(part)) == status::ok ? status::ok : status::peer_lost;
}

}  // namespace accel::device::detail
