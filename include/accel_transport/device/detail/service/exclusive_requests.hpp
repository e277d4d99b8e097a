// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/service/exclusive_parts.hpp>

#include <cstddef>
#include <cstdint>

/// One request whose session has one owner: from its header to its exchange.
namespace accel::device::detail {

/// Ends the exchange, whatever becomes of the answer.
ACCEL_HOST_DEVICE_INLINE status answer_with(owned_sessions& mine, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    if (exchange.parts != nullptr) [[unlikely]] {
        const answer last = with;  // a copy, as in `give_answer`
        return end_parts(mine, exchange, last);
    }
    return post_answer(mine, exchange, with);
}

/// Its client's patience has ended on the way.
ACCEL_HOST_DEVICE_SELDOM inline status refuse_late(owned_sessions& mine, const exchange_ref& exchange) noexcept {
    ++mine.at.sessions[exchange.session].counters.expired;
    (void)answer_with(mine, exchange, {status::timed_out, 0, 0});
    return status::again;
}
/// It comes in parts.
ACCEL_HOST_DEVICE_SELDOM inline status refuse_parts(owned_sessions& mine, const exchange_ref& exchange) noexcept {
    hold(mine, exchange, exchange.generation);
    (void)answer_with(mine, exchange, {status::unsupported, 0, 0});
    return status::again;
}
ACCEL_HOST_DEVICE_SELDOM inline status refuse_wrong(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    ++session.counters.dropped;
    session.reported = 0;
    fail_session(mine, index, status::protocol_error);
    return status::again;
}

/// A header that was not seen whole. `max_torn` of them are allowed in this time.
inline constexpr std::int64_t torn_window_ns = 1'000'000'000;
ACCEL_HOST_DEVICE_SELDOM inline status look_again(owned_sessions& mine, std::uint32_t index,
                                                  std::int64_t now) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (now - session.torn_since > torn_window_ns) {
        session.torn_since = now;
        session.torn = 0;
    }
    return ++session.torn > max_torn ? refuse_wrong(mine, index) : status::again;
}

/// The unusual turns: there is no room, the request is not a good one, or it has extensions. `ok`: it is taken on.
ACCEL_HOST_DEVICE_SELDOM inline status look_closely(owned_sessions& mine, const turn_copies& copies,
                                                    const arrival& came, std::int64_t now, exchange_ref& out) noexcept {
    if (!has_room(copies)) return block(mine, copies.session);
    if (!is_request(came, copies)) {
        const unusual what = look_at_parts(mine, copies, came, now, out.parts);
        if (what == unusual::returned) return status::again;
        if (what == unusual::continues) return refuse_parts(mine, out);
        const bool torn = came.first.words[2] != came.last_word;
        if (what == unusual::wrong)
            return torn ? look_again(mine, copies.session, now) : refuse_wrong(mine, copies.session);
    }
    const std::uint32_t code_and_extensions = came.first.words[3];
    if (code_and_extensions != 0 && !read_extensions(copies.header, code_and_extensions, out)) {
        if (out.parts != nullptr) leave_rooms(out.parts[copies.slot]);
        return refuse_wrong(mine, copies.session);
    }
    return status::ok;
}

ACCEL_HOST_DEVICE_INLINE void describe_request(const turn_copies& copies, const arrival& came, std::int64_t now,
                                               std::int64_t deadline, exchange_ref& out) noexcept {
    const wire::slot_header header = header_of(came);
    out.request = copies.header + wire::header_bytes;
    out.request_bytes = header.length;
    out.response = copies.response;
    out.response_room = header.response_room;
    out.trace_id = header.trace_id;
    out.session_id = copies.session_id;
    out.deadline = deadline;
    out.target_number = header.target;
    out.arrival = now;
    out.session = copies.session;
    out.slot = copies.slot;
    out.generation = header.generation;
    out.clock_offset = copies.clock_offset;
    out.slot_copy = copies.slot_copy;
    out.session_copy = copies.session_copy;
    out.at_hand = copies.at_hand;
    out.target.length = 0;
    out.parts = nullptr;
    out.touched = came.touched[0] ^ came.touched[1];
}

/// A slot has a new header, which an acquire has seen. `again`: its request has been refused, or has to wait.
ACCEL_HOST_DEVICE_INLINE status take_on(owned_sessions& mine, const turn_copies& copies, const arrival& came,
                                        std::int64_t now, exchange_ref& out) noexcept {
    const std::int64_t deadline = own_deadline(
        copies.clock_offset, static_cast<std::int64_t>(std::uint64_t{came.third.words[3]} << 32 | came.third.words[2]));
    describe_request(copies, came, now, deadline, out);
    const bool room = has_room(copies);
    const bool good = is_request(came, copies);
    const bool plain = room & good & (came.first.words[3] == 0);
    if (!plain) [[unlikely]] {
        // Copies: what a function is called with lies in memory.
        const turn_copies closely = copies;
        const arrival what = came;
        if (const status refused = look_closely(mine, closely, what, now, out); refused != status::ok) return refused;
    }
    const slot_watch watch{came.last_word, slot_away::held};
    *copies.watch_at = mine.slots[copies.slot_copy].watch = watch;
    copies.session_at->held = mine.sessions[copies.session_copy].held = copies.held + 1;
    if (deadline <= now) [[unlikely]]
        return refuse_late(mine, out);
    copies.session_at->requests = mine.sessions[copies.session_copy].requests = copies.requests + 1;
    return status::ok;
}

/// The work that comes before requests: commands from the host, if they have not been read for long, and a stop.
/// `place`: what a look has found. Its session may have ended; the next look finds it if not.
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

/// By one of the lanes. `place`: what they have found, of which that lane has `copies`. The one after it is looked at
/// first the next time, so that no session goes short of another's requests.
ACCEL_HOST_DEVICE_INLINE status use_look(owned_sessions& mine, std::uint32_t place, const turn_copies& copies,
                                         const arrival& came, std::int64_t now, exchange_ref& out) noexcept {
    if (place == no_slot || now - copies.orders_due > latest_orders_ns || copies.stopping != 0) [[unlikely]]
        return do_else(mine, place, now);
    mine.next = place + 1 == copies.places ? 0 : place + 1;
    return take_on(mine, copies, came, now, out);
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
    const owned_slot& own = mine.slots[rank < max_at_hand ? rank : 0];
    std::byte* header = own.header;
    slot_watch watch = own.watch;
    std::uint32_t places = mine.places;
    std::uint32_t at_hand = mine.at_hand;
    need_now(header);
    need_now(watch);
    need_now(places);
    need_now(at_hand);
    const bool by_all = at_hand == all_at_hand && (side::count() >= max_at_hand || places <= side::count());
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
    turn_copies copies;
#else
    arrival came{};
    turn_copies copies{};
#endif
    if (found != nullptr) {
        read_arrival(found, came);
        read_copies(mine, by_all ? rank : place, copies);
    }
    if (by_all) [[likely]]
        place = side::first_where(found != nullptr, mine.next);
    const std::uint32_t lane = by_all && place != no_slot ? place : 0;
    now = clock_ns();
    std::uint32_t outcome = 0;
    if (rank == lane) outcome = static_cast<std::uint32_t>(use_look(mine, place, copies, came, now, out));
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
