// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/service/exclusive_answers.hpp>
#include <accel_transport/device/detail/service/exclusive_arrivals.hpp>

#include <cstddef>
#include <cstdint>

/// Responses in parts where sessions have one owner each. A room is a request that is held until its part leaves: its
/// slot is not looked at, and the send queue keeps place for its answer. Slots are looked at in an order of their own,
/// so a room may be seen after the request that came after it.
namespace accel::device::detail {

/// The slot's copies are at hand from now on, and `out` says which they are.
ACCEL_HOST_DEVICE inline void locate(owned_sessions& mine, std::uint32_t session, std::uint32_t slot,
                                     exchange_ref& out) noexcept {
    const std::uint32_t place = (((session - mine.first) / mine.step) << mine.at.slot_bits) + slot;
    const bool all = mine.at_hand == all_at_hand;
    if (!all) fetch(mine, place);
    out.session = session;
    out.slot = slot;
    out.at_hand = mine.at_hand;
    out.slot_copy = all ? place : 0;
    out.session_copy = all ? place >> mine.at.slot_bits : 0;
}

/// The answer of a room: its part, or word that there is none. It does not count.
ACCEL_HOST_DEVICE_SELDOM inline void answer_room(owned_sessions& mine, const exchange_ref& call, std::uint32_t slot,
                                                 std::uint64_t number, const answer& with) noexcept {
    exchange_ref room;
    locate(mine, call.session, slot, room);
    owned_slot& at = mine.slots[room.slot_copy];
    room.response = at.prepared.response;
    room.generation = at.watch.generation;
    room.trace_id = number;
    room.arrival = call.arrival;
    room.clock_offset = call.clock_offset;
    const given_answer given = give_answer(mine, room, with);
    if (given.open)
        --mine.sessions[room.session_copy].replies;
    else
        --at.session_at->counters.dropped;
    account_for(mine, room, given);
}

ACCEL_HOST_DEVICE inline void return_room(owned_sessions& mine, const exchange_ref& call, std::uint32_t slot) noexcept {
    answer_room(mine, call, slot, 0, {status::cancelled, 0, 0});
}

/// Keeps a slot for its request, or for the part that it is room for.
ACCEL_HOST_DEVICE inline void hold(owned_sessions& mine, const exchange_ref& at, std::uint32_t generation) noexcept {
    owned_slot& slot = mine.slots[at.slot_copy];
    session_view& session = mine.sessions[at.session_copy];
    const slot_watch watch{generation, slot_away::held};
    *slot.watch_at = slot.watch = watch;
    slot.session_at->held = session.held = session.held + 1;
}

/// A room has been found, whose header was read once. False: no correct client sends it.
ACCEL_HOST_DEVICE_SELDOM inline bool file_room(owned_sessions& mine, std::uint32_t session, std::uint32_t slot,
                                               const wire::slot_header& header, std::int64_t now) noexcept {
    const session_offer& is = mine.at.sessions[session].is;
    part_slot* const parts = parts_of(mine, session);
    lent_room room;
    if (!read_room(header, slot, is.slots, is.responses.capacity, room)) return false;
    const slot_watch* const watches = mine.at.watches + first_number(mine, session);
    const part_rooms seen = rooms_of(parts[room.call_slot].rooms);
    const room_use use = use_of(seen, room.call_generation, watches[room.call_slot].generation);
    if (use == room_use::wrong) return false;
    exchange_ref at;
    locate(mine, session, slot, at);
    hold(mine, at, header.generation);
    if (use == room_use::returned) {
        at.arrival = now;
        at.clock_offset = mine.clock.clock_offset;
        return_room(mine, at, slot);
        return true;
    }
    parts[slot].bytes = room.bytes;
    parts[slot].next = seen.first;
    parts[room.call_slot].rooms = word_of(with_room(seen, room.call_generation, slot));
    return true;
}

/// The meaning of a header that is no plain request.
enum class unusual : std::uint32_t {
    wrong,
    request,
    continues,  ///< a request whose parts follow
    returned,   ///< a slot for a part, which has been dealt with
};

/// A part of a request, whose call is refused, goes back at once. False: no correct client sends it.
ACCEL_HOST_DEVICE_SELDOM inline bool return_part(owned_sessions& mine, std::uint32_t session, std::uint32_t slot,
                                                 const wire::slot_header& header, std::int64_t now) noexcept {
    if (!is_sane_part(header)) return false;
    exchange_ref at;
    locate(mine, session, slot, at);
    hold(mine, at, header.generation);
    at.arrival = now;
    at.clock_offset = mine.clock.clock_offset;
    return_room(mine, at, slot);
    return true;
}

/// A header with flags of parts. For a request whose response may come in parts, `out` has the rooms.
ACCEL_HOST_DEVICE_SELDOM inline unusual look_at_parts(owned_sessions& mine, const turn_copies& copies, arrival came,
                                                      std::int64_t now, part_slot*& out) noexcept {
    constexpr std::uint32_t of_parts = std::uint32_t{wire::header_flag::of_parts} << 16;
    const std::uint32_t session = copies.session;
    const std::uint32_t slot = copies.slot;
    const wire::slot_header header = header_of(came);
    came.first.words[0] &= ~of_parts;
    if (!is_request(came, copies)) return unusual::wrong;
    if (is_room(header)) return file_room(mine, session, slot, header, now) ? unusual::returned : unusual::wrong;
    if (is_request_part(header))
        return return_part(mine, session, slot, header, now) ? unusual::returned : unusual::wrong;
    if ((header.flags & wire::header_flag::more) != 0) return unusual::wrong;
    const unusual what = (header.flags & wire::header_flag::continues) == 0 ? unusual::request : unusual::continues;
    if ((header.flags & wire::header_flag::parts) == 0) return what == unusual::request ? unusual::wrong : what;
    part_slot& call = parts_of(mine, session)[slot];
    part_rooms begun;
    if (header.generation == 0 || !begin_call(rooms_of(call.rooms), header.generation, begun)) return unusual::wrong;
    call.rooms = word_of(begun);
    call.sent = 0;
    call.named = 0;
    out = parts_of(mine, session);
    return what;
}

/// Takes the room lent last; 0: there is none.
ACCEL_HOST_DEVICE inline std::uint32_t take_room(part_slot* parts, part_slot& call) noexcept {
    part_rooms seen = rooms_of(call.rooms);
    const std::uint32_t taken = seen.first;
    if (taken == 0) return 0;
    seen.first = parts[taken - 1].next;
    call.rooms = word_of(seen);
    return taken;
}

/// Ends an exchange in parts: the rooms that are left go back after the answer.
ACCEL_HOST_DEVICE_SELDOM inline status end_parts(owned_sessions& mine, const exchange_ref& exchange,
                                                 const answer& with) noexcept {
    part_slot* const parts = exchange.parts;
    part_slot& call = parts[exchange.slot];
    exchange_ref last = exchange;
    last.trace_id = call.sent;  // lies where the count is told
    const status sent = post_answer(mine, last, with);
    std::uint32_t left = call.named;
    if (left == 0) left = take_room(parts, call);
    for (; left != 0; left = take_room(parts, call)) return_room(mine, exchange, left - 1);
    call.rooms = word_of({exchange.generation, parts_phase::ended, 0});
    return sent;
}

/// An owner that sends parts looks for rooms itself: in the slots of that session, and no further.
ACCEL_HOST_DEVICE_SELDOM inline void look_for_rooms(owned_sessions& mine, std::uint32_t session) noexcept {
    const std::int64_t now = clock_ns();
    if (now >= mine.orders_due) take_orders(mine, now);
    const exclusive_session& of = mine.at.sessions[session];
    if (!has_room(of)) take_completions(mine, session);
    unblock(mine, session);
    for (std::uint32_t slot = 0; slot < of.is.slots && has_room(of); ++slot) {
        const std::uint32_t number = first_number(mine, session) + slot;
        const slot_watch watch = mine.at.watches[number];
        std::byte* const header = request_header(mine.at, number);
        if (!is_new<true>(header, watch)) continue;
        arrival came{};
        read_arrival(header, came);
        if (came.first.words[2] != came.last_word || !is_room(header_of(came))) continue;
        turn_copies copies{};
        copies.session = session;
        copies.slot = slot;
        copies.generation = watch.generation;
        copies.request_capacity = of.request_capacity;
        copies.response_capacity = of.response_capacity;
        part_slot* none = nullptr;
        if (look_at_parts(mine, copies, came, now, none) != unusual::wrong) continue;
        return fail_session(mine, session, status::protocol_error);
    }
}

/// Room for the next part; it stays the next until a part is sent.
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM inline status name_part(owned_sessions& mine, const exchange_ref& exchange,
                                                               part_ref& out) noexcept {
    part_slot* const parts = exchange.parts;
    if (parts == nullptr) return status::unsupported;
    const exclusive_session& session = mine.at.sessions[exchange.session];
    part_slot& call = parts[exchange.slot];
    if (call.named == 0) call.named = take_room(parts, call);
    if (call.named == 0) {
        look_for_rooms(mine, exchange.session);
        call.named = take_room(parts, call);
    }
    if (session.phase != session_phase::open) return status::peer_lost;
    if (call.named == 0) return status::again;
    const std::uint32_t slot = call.named - 1;
    out.bytes = mine.at.prepared[first_number(mine, exchange.session) + slot].response;
    out.room = parts[slot].bytes;
    return status::ok;
}

/// Sends what was written there.
ACCEL_HOST_DEVICE_SELDOM inline status send_part(owned_sessions& mine, const exchange_ref& exchange,
                                                 std::uint64_t length) noexcept {
    part_slot* const parts = exchange.parts;
    if (parts == nullptr) return status::unsupported;
    part_slot& call = parts[exchange.slot];
    if (mine.at.sessions[exchange.session].phase != session_phase::open) return status::peer_lost;
    if (call.named == 0) return status::again;
    const std::uint32_t slot = call.named - 1;
    if (length > parts[slot].bytes) return status::message_too_large;
    call.named = 0;
    answer_room(mine, exchange, slot, call.sent++, {status::ok, 0, length, wire::header_flag::more});
    return status::ok;
}

}  // namespace accel::device::detail
