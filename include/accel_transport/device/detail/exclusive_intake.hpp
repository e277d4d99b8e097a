// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/lanes.hpp>
#include <accel_transport/device/service_ref.hpp>

#include <cstddef>
#include <cstdint>

/// What comes in at an owner of sessions: the host's orders, completions of its sends, and requests, which it
/// finds by looking at its slots.
namespace accel::device::detail {

/// The host's orders are read, across the bus, once in so long.
inline constexpr std::int64_t between_orders_ns = 250'000;
/// … and at most so late where requests leave no time.
inline constexpr std::int64_t latest_orders_ns = 1'000'000;

inline constexpr std::uint32_t no_slot = 0xffff'ffffU;

ACCEL_HOST_DEVICE inline std::uint32_t first_number(const owned_sessions& mine, std::uint32_t session) noexcept {
    return session << mine.at.slot_bits;
}
ACCEL_HOST_DEVICE inline std::byte* request_header(const exclusive_ref& at, std::uint32_t number) noexcept {
    const std::uint32_t session = number >> at.slot_bits;
    const std::uint32_t slot = number & ((std::uint32_t{1} << at.slot_bits) - 1);
    return at.requests + at.session_stride * session + at.slot_stride * slot;
}
/// The word of a request's header that its client writes last.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t* arrival_word(std::byte* header) noexcept {
    return reinterpret_cast<std::uint32_t*>(header + wire::arrival_word_offset);
}

// Sessions.

ACCEL_HOST_DEVICE inline void set_away(const owned_sessions& mine, std::uint32_t session, std::uint32_t bits) noexcept {
    slot_watch* const watches = mine.at.watches + first_number(mine, session);
    for (std::uint32_t i = 0; i < mine.at.slots; ++i) watches[i].away |= bits;
}

/// The peer broke the protocol, or its queue pair is of no more use: this session ends, and no other.
ACCEL_HOST_DEVICE_SELDOM inline void fail_session(owned_sessions& mine, std::uint32_t index, status why,
                                                  mlx5::syndrome syndrome = mlx5::syndrome::none) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (session.phase != session_phase::open) return;
    session.phase = session_phase::failed;
    set_away(mine, index, slot_away::closed);
    ++mine.changes;
    const std::uint32_t told = static_cast<std::uint32_t>(why) | static_cast<std::uint32_t>(syndrome) << 16;
    mlx5::store_whole(&mine.session_reports[index].failure, told);
}

/// Everything of an answer that is known when its session opens.
ACCEL_HOST_DEVICE inline void prepare_request(const exclusive_session& session, std::uint32_t slot,
                                              prepared_request& out) noexcept {
    const peer_slots_layout& peer = session.is.peer;
    std::byte* const header_at = header_of(session.is.responses, slot);
    const auto header = reinterpret_cast<std::uint64_t>(header_at);
    out = {};
    out.response = header_at + wire::header_bytes;
    out.control.qpn_ds = mlx5::qpn_ds_of(session.sends, prepared_segments);
    out.control.immediate = mlx5::to_be32(slot);
    out.remote = {mlx5::to_be64(peer.headers + peer.headers_stride * slot), mlx5::to_be32(peer.headers_key),
                  mlx5::be32{}};
    out.local = {mlx5::be32{}, mlx5::to_be32(session.is.responses.key), mlx5::to_be64(header)};
}

ACCEL_HOST_DEVICE inline void open_session(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    session.is = mine.offers[index];
    session.id = session.is.id;
    session.request_capacity = session.is.requests.capacity;
    session.response_capacity = session.is.responses.capacity;
    session.peer_payloads = session.is.peer.payloads;
    session.posted = session.released = session.held = session.blocked = 0;
    const std::uint32_t first = first_number(mine, index);
    for (std::uint32_t i = 0; i < mine.at.slots && i < session.is.slots; ++i) {
        prepare_request(session, i, mine.at.prepared[first + i]);
        mine.at.watches[first + i] = {0, 0};
    }
    session.phase = session_phase::open;
    ++mine.changes;
}

/// Once nothing of it is in use. Headers that stay behind must not be taken for a later client's, and neither
/// must requests that were posted after its queue pair had gone.
ACCEL_HOST_DEVICE_SELDOM inline void end_session(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (session.held != 0) return;
    for (std::uint32_t i = 0; i < mine.at.slots; ++i) {
        std::byte* const header = request_header(mine.at, first_number(mine, index) + i);
        mlx5::store_whole(arrival_word(header), 0U);
    }
    mlx5::store_whole(session.sends.doorbell_record, mlx5::be32{});
    session.phase = session_phase::none;
    mlx5::store_flag(&mine.session_reports[index].closed, session.order_seen >> 1);
}

/// Its queue pair has gone and makes no more completions. Those that are left are nobody's, and take no room from
/// the next session's.
ACCEL_HOST_DEVICE inline void close_session(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    session.phase = session_phase::closing;
    set_away(mine, index, slot_away::closed);
    ++mine.changes;
    mlx5::completion left;
    while (mlx5::take(session.completions, left)) continue;
    mlx5::publish_taken(session.completions);
    end_session(mine, index);
}

/// The host gives a session an order only after it has heard that the one before was obeyed, except that it may
/// close what has not been seen open.
ACCEL_HOST_DEVICE_SELDOM inline void obey(owned_sessions& mine, std::uint32_t index) noexcept {
    const std::uint32_t order = mlx5::load_flag(mine.at.orders + index);
    exclusive_session& session = mine.at.sessions[index];
    if (order == session.order_seen) return;
    session.order_seen = order;
    if ((order & 1U) != 0)
        open_session(mine, index);
    else
        close_session(mine, index);
}

// Completions of sends.

/// Frees the room of what the adapter is done with.
ACCEL_HOST_DEVICE_SELDOM inline void take_completions(owned_sessions& mine, std::uint32_t index) noexcept {
    constexpr int most = 8;
    exclusive_session& session = mine.at.sessions[index];
    mlx5::completion done;
    int count = 0;
    for (; count < most && mlx5::take(session.completions, done); ++count) {
        if (session.phase != session_phase::open) continue;
        const auto distance = static_cast<std::uint16_t>(done.counter - static_cast<std::uint16_t>(session.released));
        if (done.failure != mlx5::syndrome::none)
            fail_session(mine, index, status::peer_lost, done.failure);
        else if (done.kind != mlx5::entry_kind::request || distance >= session.posted - session.released)
            fail_session(mine, index, status::system_error);
        else
            session.released += distance + 1U;
    }
    if (count != 0) mlx5::publish_taken(session.completions);
}

/// True: an answer may be posted for every request that is held, and for one more.
template <class Session>
ACCEL_HOST_DEVICE bool has_room(const Session& session) noexcept {
    return session.posted - session.released + 2 * (session.held + 1) <= session.limit;
}

/// A client that does not take its answers is not looked at until there is room for them: nobody waits for it.
ACCEL_HOST_DEVICE_SELDOM inline void block(owned_sessions& mine, std::uint32_t index) noexcept {
    mine.at.sessions[index].blocked = 1;
    set_away(mine, index, slot_away::blocked);
    ++mine.changes;
}
ACCEL_HOST_DEVICE inline void unblock(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (session.blocked == 0 || !has_room(session)) return;
    session.blocked = 0;
    ++mine.changes;
    slot_watch* const watches = mine.at.watches + first_number(mine, index);
    for (std::uint32_t i = 0; i < mine.at.slots; ++i) watches[i].away &= ~slot_away::blocked;
}

// The host's orders.

ACCEL_HOST_DEVICE inline void report(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (session.reported != 0) return;
    session.reported = 1;
    session_report& out = mine.session_reports[index];
    mlx5::store_whole(&out.requests, session.requests);
    mlx5::store_whole(&out.replies, session.replies);
    mlx5::store_whole(&out.expired, session.counters.expired);
    mlx5::store_whole(&out.dropped, session.counters.dropped);
}
ACCEL_HOST_DEVICE_SELDOM inline void report_all(owned_sessions& mine) noexcept {
    for (std::uint32_t i = mine.first; i < mine.session_count; i += mine.step) report(mine, i);
}

/// The clock's part of `owned_sessions`, as `sync_host_clock` wants it.
struct owner_clock {
    host_clock_state* state;
    const orders_layout* orders;
    report_layout* report;
};

ACCEL_HOST_DEVICE_SELDOM inline void take_orders(owned_sessions& mine, std::int64_t now) noexcept {
    mine.orders_due = now + between_orders_ns;
    const std::uint32_t given = mlx5::load_flag(&mine.orders->commands);
    if (given != mine.orders_seen) {
        mine.orders_seen = given;
        for (std::uint32_t i = mine.first; i < mine.session_count; i += mine.step) obey(mine, i);
    }
    sync_host_clock(owner_clock{&mine.clock, mine.orders, mine.report});
    mine.stopping = mlx5::load_whole(&mine.orders->stop);
    // One session a time: each is a read of the host's memory.
    if (mine.count == 0) return;
    take_completions(mine, mine.checked);
    unblock(mine, mine.checked);
    report(mine, mine.checked);
    mine.checked += mine.step;
    if (mine.checked >= mine.session_count) mine.checked = mine.first;
}

/// What can wait until there is nothing else to do.
ACCEL_HOST_DEVICE_SELDOM inline void use_idle_time(owned_sessions& mine, std::int64_t now) noexcept {
    if (mine.last != no_session) {
        const exclusive_session& session = mine.at.sessions[mine.last];
        if (session.posted - session.released > session.limit / 4) take_completions(mine, mine.last);
        mine.last = no_session;
    }
    if (now >= mine.orders_due) take_orders(mine, now);
}

// Requests.

/// The owner's slots, one session after the other, without gaps between their places.
ACCEL_HOST_DEVICE inline std::uint32_t places_of(const owned_sessions& mine) noexcept {
    return mine.count << mine.at.slot_bits;
}
/// The number of the slot in `place`.
ACCEL_HOST_DEVICE inline std::uint32_t number_of(const owned_sessions& mine, std::uint32_t place) noexcept {
    const std::uint32_t slot = place & ((std::uint32_t{1} << mine.at.slot_bits) - 1);
    const std::uint32_t session = mine.first + (place >> mine.at.slot_bits) * mine.step;
    return (session << mine.at.slot_bits) | slot;
}
/// The place that is looked at as number `at` of a look: the first is behind what was found last.
ACCEL_HOST_DEVICE inline std::uint32_t place_of(const owned_sessions& mine, std::uint32_t at) noexcept {
    const std::uint32_t place = mine.next + at;
    return place >= places_of(mine) ? place - places_of(mine) : place;
}

/// What lies in `place`. Not every one has a slot: its watch says so for ever, and the header is another's.
ACCEL_HOST_DEVICE inline place_ref find_place(const owned_sessions& mine, std::uint32_t place) noexcept {
    const std::uint32_t number = number_of(mine, place);
    const std::uint32_t slot = number & ((std::uint32_t{1} << mine.at.slot_bits) - 1);
    const std::uint32_t session = number >> mine.at.slot_bits;
    const std::uint32_t header = slot < mine.at.slots ? number : first_number(mine, session);
    return {request_header(mine.at, header),
            mine.at.watches + number,
            mine.at.sessions + session,
            mine.at.prepared + number,
            session,
            slot};
}
ACCEL_HOST_DEVICE inline void keep_at_hand(owned_sessions& mine) noexcept {
    const std::uint32_t all = places_of(mine);
    for (std::uint32_t i = 0; all <= most_at_hand && i < all; ++i) mine.at_hand[i] = find_place(mine, i);
}
ACCEL_HOST_DEVICE inline place_ref look_up(const owned_sessions& mine, std::uint32_t place) noexcept {
    return places_of(mine) <= most_at_hand ? mine.at_hand[place] : find_place(mine, place);
}

/// True: the place has a new request. With `Acquire`, what its client wrote before is seen.
template <bool Acquire>
ACCEL_HOST_DEVICE_INLINE bool is_new(std::byte* header, const slot_watch* watched) noexcept {
    // Neither load waits for the other.
    const std::uint32_t* const word = arrival_word(header);
    const slot_watch watch = *watched;
    const std::uint32_t seen = Acquire ? mlx5::load_flag(word) : mlx5::load_whole(word);
    return watch.away == 0 && seen != watch.generation;
}
ACCEL_HOST_DEVICE_INLINE bool is_new_at(const owned_sessions& mine, std::uint32_t at) noexcept {
    if (at >= places_of(mine)) return false;
    const place_ref place = find_place(mine, place_of(mine, at));
    return is_new<false>(place.header, place.watch);
}

/// The place of a slot with a new request, or `no_slot`: the same on every lane, each of which looks at another
/// slot. That of the first behind what was found last.
template <class Scope>
ACCEL_HOST_DEVICE_INLINE std::uint32_t find_at_hand(const owned_sessions& mine) noexcept {
    const std::uint32_t rank = lanes<Scope>::rank();
    bool found = false;
    if (rank < places_of(mine)) found = is_new<true>(mine.at_hand[rank].header, mine.at_hand[rank].watch);
    return lanes<Scope>::first_where(found, mine.next);
}

/// Likewise. Loads of several rounds are under way together. An acquire would wait for each.
template <class Scope>
ACCEL_HOST_DEVICE_INLINE std::uint32_t find_in_rounds(const owned_sessions& mine) noexcept {
    using side = lanes<Scope>;
    const std::uint32_t all = places_of(mine);
    const std::uint32_t count = side::count();
    const std::uint32_t rank = side::rank();
    constexpr std::uint32_t at_once = 4;
    for (std::uint32_t base = 0; base < all; base += at_once * count) {
        bool found[at_once];
        for (std::uint32_t i = 0; i < at_once; ++i) found[i] = is_new_at(mine, base + i * count + rank);
        for (std::uint32_t i = 0; i < at_once; ++i) {
            const std::uint32_t lane = side::first_where(found[i], 0);
            if (lane == side::none) continue;
            const std::uint32_t place = place_of(mine, base + i * count + lane);
            (void)mlx5::load_flag(arrival_word(look_up(mine, place).header));
            return place;
        }
    }
    return no_slot;
}

template <class Scope>
ACCEL_HOST_DEVICE_INLINE std::uint32_t find_new(const owned_sessions& mine) noexcept {
    static_assert(lanes<Scope>::none == no_slot);
    const std::uint32_t all = places_of(mine);
    if (all <= most_at_hand && all <= lanes<Scope>::count()) return find_at_hand<Scope>(mine);
    return find_in_rounds<Scope>(mine);
}

}  // namespace accel::device::detail
