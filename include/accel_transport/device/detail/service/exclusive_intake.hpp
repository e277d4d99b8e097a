// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/lanes.hpp>
#include <accel_transport/device/detail/service/exclusive_slots.hpp>

#include <cstddef>
#include <cstdint>

/// The inputs of an owner of sessions: commands from the host, completions of its sends, and requests, which it
/// finds by looking at its slots.
namespace accel::device::detail {

/// Commands from the host are read, across the bus, once in this time.
inline constexpr std::int64_t between_orders_ns = 250'000;
/// … and at most so late where requests leave no time.
inline constexpr std::int64_t latest_orders_ns = 1'000'000;

// Sessions.

ACCEL_HOST_DEVICE inline part_slot* parts_of(const owned_sessions& mine, std::uint32_t session) noexcept {
    return mine.at.parts + first_number(mine, session);
}

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
    refresh(mine, index);
    const std::uint32_t told = static_cast<std::uint32_t>(why) | static_cast<std::uint32_t>(syndrome) << 16;
    mlx5::store_whole(&mine.session_reports[index].failure, told);
}

ACCEL_HOST_DEVICE inline void prepare_answer(const exclusive_session& session, std::uint32_t slot,
                                             prepared_header& out) noexcept {
    const peer_slots_layout& peer = session.is.peer;
    std::byte* const header = header_of(session.is.responses, slot);
    out = {};
    out.qpn_ds = mlx5::qpn_ds_of(session.sends, prepared_segments);
    out.immediate = mlx5::to_be32(slot);
    out.key = mlx5::to_be32(session.is.responses.key);
    if (peer.plain != 0) out.operation = mlx5::opcode::write;
    out.remote = {mlx5::to_be64(peer.headers + peer.headers_stride * slot), mlx5::to_be32(peer.headers_key),
                  mlx5::be32{}};
    out.address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(header));
    out.response = header + wire::header_bytes;
}

/// Prepares a session that opens for its turns.
ACCEL_HOST_DEVICE inline void prepare_view(exclusive_session& session, engine by) noexcept {
    session.ring = by == engine::proxy ? reinterpret_cast<std::byte*>(session.proxied.ring) : session.sends.ring;
    session.doorbell = session.sends.doorbell;
    session.doorbell_record = session.sends.doorbell_record;
    session.wqebb_mask = (by == engine::proxy ? session.proxied.count : session.sends.wqebbs) - 1;
    session.id = session.is.id;
    session.request_capacity = static_cast<std::uint32_t>(session.is.requests.capacity);
    session.response_capacity = static_cast<std::uint32_t>(session.is.responses.capacity);
    session.payloads_apart = session.is.peer.payloads != 0 ? 1 : 0;
    session.posted = session.released = session.held = 0;
    session.phase = session_phase::open;
}

ACCEL_HOST_DEVICE inline void open_session(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    session.is = mine.offers[index];
    session.blocked = 0;
    session.torn = 0;
    prepare_view(session, mine.at.by);
    const std::uint32_t first = first_number(mine, index);
    for (std::uint32_t i = 0; i < mine.at.slots && i < session.is.slots; ++i) {
        prepare_answer(session, i, mine.at.prepared[first + i]);
        mine.at.watches[first + i] = {0, 0};
        mine.at.parts[first + i] = {};
    }
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
    if (mine.at.by == engine::direct) mlx5::store_whole(session.sends.doorbell_record, mlx5::be32{});
    session.phase = session_phase::none;
    refresh(mine, index);
    mlx5::store_flag(&mine.session_reports[index].closed, session.order_seen >> 1);
}

/// Its queue pair has gone and makes no more completions. Those that are left are nobody's, and take no room from
/// the next session's.
ACCEL_HOST_DEVICE inline void drop_completions(const exclusive_session& session) noexcept {
    mlx5::completion left;
    while (mlx5::take(session.completions, left)) continue;
    mlx5::publish_taken(session.completions);
}
/// Rooms that have no call, of a session that ends: its client sends no request any more.
ACCEL_HOST_DEVICE_SELDOM inline void drop_early_rooms(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    part_slot* const parts = parts_of(mine, index);
    for (std::uint32_t i = 0; i < session.is.slots; ++i) {
        const part_rooms seen = rooms_of(parts[i].rooms);
        if (seen.phase != parts_phase::early) continue;
        for (std::uint32_t left = seen.first; left != 0; left = parts[left - 1].next) --session.held;
        parts[i].rooms = word_of({seen.generation, parts_phase::ended, 0});
    }
}

ACCEL_HOST_DEVICE inline void close_session(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    session.phase = session_phase::closing;
    set_away(mine, index, slot_away::closed);
    if (mine.at.by == engine::direct) drop_completions(session);
    drop_early_rooms(mine, index);
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
    refresh(mine, index);
}

// Completions of sends.

/// The same where a proxy posts: it tells how many descriptors are done. The host hears of failures.
ACCEL_HOST_DEVICE inline void take_released(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    const std::uint32_t released = mlx5::load_flag(session.proxied.released);
    const std::uint32_t more = released - session.released;
    if (session.phase != session_phase::open || more == 0 || more > session.posted - session.released) return;
    session.released = released;
    refresh(mine, index);
}

/// Frees the room of what the adapter is done with.
ACCEL_HOST_DEVICE_SELDOM inline void take_completions(owned_sessions& mine, std::uint32_t index) noexcept {
    if (mine.at.by == engine::proxy) return take_released(mine, index);
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
    if (count == 0) return;
    mlx5::publish_taken(session.completions);
    refresh(mine, index);
}

/// True: an answer may be posted for every request that is held, and for one more.
template <class View>
ACCEL_HOST_DEVICE_INLINE bool has_room(const View& session) noexcept {
    return session.posted - session.released + 2 * (session.held + 1) <= session.limit;
}

/// A client that does not take its answers is not looked at until there is room for them: nobody waits for it.
ACCEL_HOST_DEVICE_SELDOM inline status block(owned_sessions& mine, std::uint32_t index) noexcept {
    mine.at.sessions[index].blocked = 1;
    set_away(mine, index, slot_away::blocked);
    refresh(mine, index);
    return status::again;
}
ACCEL_HOST_DEVICE inline void unblock(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (session.blocked == 0 || !has_room(session)) return;
    session.blocked = 0;
    slot_watch* const watches = mine.at.watches + first_number(mine, index);
    for (std::uint32_t i = 0; i < mine.at.slots; ++i) watches[i].away &= ~slot_away::blocked;
    refresh(mine, index);
}

// Commands from the host.

ACCEL_HOST_DEVICE inline void report(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    if (session.reported != 0) return;
    session.reported = 1;
    refresh(mine, index);
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

/// The work that can wait until there is nothing else to do.
ACCEL_HOST_DEVICE_SELDOM inline void use_idle_time(owned_sessions& mine, std::int64_t now) noexcept {
    if (mine.last != no_session) {
        const exclusive_session& session = mine.at.sessions[mine.last];
        if (session.posted - session.released > session.limit / 4) take_completions(mine, mine.last);
        mine.last = no_session;
    }
    if (now >= mine.orders_due) take_orders(mine, now);
}

// Requests.

/// The place that is looked at as number `at` of a look: the first follows what was found last.
ACCEL_HOST_DEVICE inline std::uint32_t place_of(const owned_sessions& mine, std::uint32_t at) noexcept {
    const std::uint32_t place = mine.next + at;
    return place >= mine.places ? place - mine.places : place;
}

/// True: the slot has a new request. With `Acquire`, what its client wrote before is seen.
template <bool Acquire>
ACCEL_HOST_DEVICE_INLINE bool is_new(std::byte* header, slot_watch watch) noexcept {
    const std::uint32_t* const word = arrival_word(header);
    const std::uint32_t seen = Acquire ? mlx5::load_flag(word) : mlx5::load_whole(word);
    return watch.away == 0 && seen != watch.generation;
}
ACCEL_HOST_DEVICE_INLINE bool is_new_at(const owned_sessions& mine, std::uint32_t at) noexcept {
    if (at >= mine.places) return false;
    const std::uint32_t place = place_of(mine, at);
    if (mine.at_hand == all_at_hand) return is_new<false>(mine.slots[place].header, mine.slots[place].watch);
    const std::uint32_t number = number_of(mine, place);
    return is_new<false>(header_at(mine, number), mine.at.watches[number]);
}

/// The place of a slot with a new request, or `no_slot`: the same on every lane, each of which looks at other slots.
/// That of the first after what was found last. Loads of several rounds are under way together: an acquire would wait
/// for each, so there is one, of what was found.
template <class Scope>
ACCEL_HOST_DEVICE_SELDOM std::uint32_t find_in_rounds(const owned_sessions& mine) noexcept {
    using side = lanes<Scope>;
    const std::uint32_t count = side::count();
    const std::uint32_t rank = side::rank();
    constexpr std::uint32_t at_once = 4;
    for (std::uint32_t base = 0; base < mine.places; base += at_once * count) {
        bool found[at_once];
        for (std::uint32_t i = 0; i < at_once; ++i) found[i] = is_new_at(mine, base + i * count + rank);
        for (std::uint32_t i = 0; i < at_once; ++i) {
            const std::uint32_t lane = side::first_where(found[i], 0);
            if (lane == side::none) continue;
            const std::uint32_t place = place_of(mine, base + i * count + lane);
            (void)mlx5::load_flag(arrival_word(header_at(mine, number_of(mine, place))));
            return place;
        }
    }
    return no_slot;
}

}  // namespace accel::device::detail
