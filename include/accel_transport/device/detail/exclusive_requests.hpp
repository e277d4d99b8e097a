// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/exclusive_parts.hpp>

#include <cstddef>
#include <cstdint>

/// What becomes of a request whose session has one owner.
namespace accel::device::detail {

/// Ends the exchange, whatever becomes of the answer.
ACCEL_HOST_DEVICE_INLINE status answer_with(owned_sessions& mine, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    if (exchange.parts != nullptr) [[unlikely]]
        return end_parts(mine, exchange, with);
    return post_answer(mine, exchange, with);
}

/// Its client's patience has ended on the way.
ACCEL_HOST_DEVICE_SELDOM inline status refuse_late(owned_sessions& mine, const exchange_ref& exchange) noexcept {
    ++mine.at.sessions[exchange.session].counters.expired;
    (void)answer_with(mine, exchange, {status::timed_out, 0, 0});
    return status::again;
}
ACCEL_HOST_DEVICE_SELDOM inline status refuse_wrong(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    ++session.counters.dropped;
    session.reported = 0;
    fail_session(mine, index, status::protocol_error);
    return status::again;
}

/// A slot has a new header, which an acquire has seen, and its copies are there. `again`: its request has been refused,
/// or has to wait.
ACCEL_HOST_DEVICE_INLINE status take_on(owned_sessions& mine, std::uint32_t place, const arrival& came,
                                        std::int64_t now, exchange_ref& out) noexcept {
    const bool all = mine.at_hand == all_at_hand;
    const std::uint32_t slot_copy = all ? place : 0;
    const std::uint32_t session_copy = all ? place >> mine.at.slot_bits : 0;
    // By value: all this is read while the header is under way.
    const owned_slot slot = mine.slots[slot_copy];
    const session_view session = mine.sessions[session_copy];
    const std::int64_t clock_offset = mine.clock.clock_offset;
    if (!has_room(session)) [[unlikely]]
        return block(mine, slot.session);
    part_slot* parts = nullptr;
    if (!is_request(came, session, slot.slot, slot.watch.generation)) [[unlikely]] {
        const unusual what = look_at_parts(mine, slot.session, slot.slot, came, slot.watch, now);
        if (what == unusual::wrong) return refuse_wrong(mine, slot.session);
        if (what == unusual::room) return status::again;
        parts = parts_of(mine, slot.session);
    }
    const wire::slot_header header = header_of(came);
    const std::int64_t deadline = own_deadline(clock_offset, header.deadline_ns);
    const std::uint32_t code_and_extensions = came.first.words[3];
    out.request = slot.header + wire::header_bytes;
    out.request_bytes = header.length;
    out.response = slot.prepared.response;
    out.response_room = header.response_room;
    out.trace_id = header.trace_id;
    out.session_id = session.id;
    out.deadline = deadline;
    out.target_number = header.target;
    out.arrival = now;
    out.session = slot.session;
    out.slot = slot.slot;
    out.generation = header.generation;
    out.clock_offset = clock_offset;
    out.target.length = 0;
    out.parts = parts;
    out.at_hand = mine.at_hand;
    out.slot_copy = slot_copy;
    out.session_copy = session_copy;
    out.touched = came.touched[0] ^ came.touched[1];
    if (code_and_extensions != 0 && !read_extensions(slot.header, code_and_extensions, out)) [[unlikely]]
        return refuse_wrong(mine, out.session);
    const slot_watch watch{header.generation, slot_away::held};
    *slot.watch_at = mine.slots[slot_copy].watch = watch;
    slot.session_at->held = mine.sessions[session_copy].held = session.held + 1;
    if (deadline <= now) [[unlikely]]
        return refuse_late(mine, out);
    slot.session_at->requests = mine.sessions[session_copy].requests = session.requests + 1;
    return status::ok;
}

/// What comes before requests: the host's orders, if they have not been read for long, and a stop. `place`: what a look
/// has found. Its session may have ended; the next look finds it if not.
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM inline status do_else(owned_sessions& mine, std::uint32_t place,
                                                             std::int64_t now) noexcept {
    if (place == no_slot)
        use_idle_time(mine, now);
    else if (now - mine.orders_due > latest_orders_ns)
        take_orders(mine, now);
    if (mine.stopping == 0) return status::again;
    report_all(mine);
    return status::closed;
}

/// By one of the lanes. `place`: what they have found. The one behind it is looked at first the next time, so that no
/// session goes short of another's requests.
ACCEL_HOST_DEVICE_INLINE status use_look(owned_sessions& mine, std::uint32_t place, const arrival& came,
                                         std::int64_t now, exchange_ref& out) noexcept {
    if (place == no_slot || now - mine.orders_due > latest_orders_ns || mine.stopping != 0) [[unlikely]]
        return do_else(mine, place, now);
    mine.next = place + 1 == mine.places ? 0 : place + 1;
    return take_on(mine, place, came, now, out);
}

/// One look at all slots, by the scope's lanes together. The clock is read once. Where each lane has a slot at hand,
/// the lane that finds a request goes on with it: what it reads next is under way before the others have told what they
/// found.
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status look_once(owned_sessions& mine, exchange_ref& out,
                                                        std::int64_t& now) noexcept {
    using side = lanes<Scope>;
    static_assert(side::none == no_slot);
    const std::uint32_t rank = side::rank();
    const owned_slot& own = mine.slots[rank < most_at_hand ? rank : 0];
    std::byte* const header = own.header;
    const slot_watch watch = own.watch;
    const std::uint32_t places = mine.places;
    const bool by_all = mine.at_hand == all_at_hand && (side::count() >= most_at_hand || places <= side::count());
    std::uint32_t place = no_slot;
    std::byte* found = nullptr;  // by this lane
    if (by_all) [[likely]] {
        if (rank < places && is_new<true>(header, watch)) found = header;
    } else {
        place = find_in_rounds<Scope>(mine);
        if (rank == 0 && place != no_slot) {
            fetch(mine, place);
            found = header_at(mine, number_of(mine, place));
        }
    }
#if defined(__CUDA_ARCH__)
    arrival came;  // not looked at unless the lane has found something
#else
    arrival came{};
#endif
    if (found != nullptr) read_arrival(found, came);
    if (by_all) [[likely]]
        place = side::first_where(found != nullptr, mine.next);
    const std::uint32_t lane = by_all && place != no_slot ? place : 0;
    now = clock_ns();
    std::uint32_t outcome = 0;
    if (rank == lane) outcome = static_cast<std::uint32_t>(use_look(mine, place, came, now, out));
    return static_cast<status>(side::of(outcome, lane));
}

template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status wait_for_request(owned_sessions& mine, exchange_ref& out,
                                                               std::int64_t timeout_ns) noexcept {
    for (std::int64_t start = 0;;) {
        std::int64_t now = 0;
        const status found = look_once<Scope>(mine, out, now);
        if (found != status::again) return found;
        if (start == 0) start = now;
        // The lanes' clocks may differ: the first one's counts.
        if (lanes<Scope>::of(now - start >= timeout_ns ? 1 : 0, 0) != 0) return status::timed_out;
    }
}

/// By one thread.
[[nodiscard]] ACCEL_HOST_DEVICE inline status own_sessions(const service_ref& service, std::uint32_t part,
                                                           std::uint32_t parts, owned_sessions& out) noexcept {
    if (!is_own_version(service.layout) || service.exclusive.sessions == nullptr) return status::unsupported;
    if (part >= parts) return status::invalid_argument;
    out = {};
    out.at = service.exclusive;
    out.orders = service.orders;
    out.offers = service.offers;
    out.report = service.report;
    out.session_reports = service.session_reports;
    out.session_count = service.session_count;
    out.first = out.checked = part;
    out.step = parts;
    out.count = part < service.session_count ? (service.session_count - part - 1) / parts + 1 : 0;
    // Not as the host counts: the orders are read once in any case.
    out.orders_seen = mlx5::load_flag(&service.orders->commands) - 1;
    out.last = no_session;
    copy_all(out);
    return status::ok;
}

}  // namespace accel::device::detail
