// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/exclusive_intake.hpp>
#include <accel_transport/device/detail/service_answers.hpp>

#include <cstddef>
#include <cstdint>

/// What becomes of a request whose session has one owner. From the header's arrival to the doorbell there is no lock,
/// no load from the host's memory, and no atomic operation whose result anything waits for.
namespace accel::device::detail {

/// One piece of 16 bytes, as it is read.
struct alignas(16) loaded_quad {
    std::uint32_t words[4];
};
ACCEL_HOST_DEVICE inline void load_quad(const loaded_quad* from, loaded_quad& out) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.words[0]), "=r"(out.words[1]), "=r"(out.words[2]), "=r"(out.words[3])
                 : "l"(from)
                 : "memory");
#else
    for (int i = 0; i < 4; ++i) out.words[i] = mlx5::load_whole(from->words + i);
#endif
}

/// Reads in pieces, all of which are under way together. Once: a client can change its header at any time.
template <class Layout>
ACCEL_HOST_DEVICE inline void load_at_once(const void* from, Layout& out) noexcept {
    static_assert(sizeof out % sizeof(loaded_quad) == 0);
    loaded_quad pieces[sizeof out / sizeof(loaded_quad)];
    for (std::size_t i = 0; i < sizeof out / sizeof(loaded_quad); ++i)
        load_quad(static_cast<const loaded_quad*>(from) + i, pieces[i]);
    __builtin_memcpy(static_cast<void*>(&out), pieces, sizeof out);
}

/// 16 bytes in one store: over a bus each is a packet.
template <class Segment>
ACCEL_HOST_DEVICE inline void put_segment(std::byte* to, const Segment& segment) noexcept {
    static_assert(sizeof(Segment) == mlx5::ds_bytes);
#if defined(__CUDA_ARCH__)
    uint4 words;
    __builtin_memcpy(&words, &segment, sizeof words);
    *reinterpret_cast<uint4*>(to) = words;
#else
    *reinterpret_cast<Segment*>(to) = segment;
#endif
}

ACCEL_HOST_DEVICE inline void put_request(const mlx5::send_queue_ref& queue, std::uint32_t wqebb,
                                          const prepared_request& request) noexcept {
    std::byte* const at = queue.ring + std::size_t{wqebb & (queue.wqebbs - 1)} * mlx5::wqebb_bytes;
    put_segment(at, request.control);
    put_segment(at + mlx5::ds_bytes, request.remote);
    put_segment(at + 2 * std::size_t{mlx5::ds_bytes}, request.local);
}

/// Fills in what changes from answer to answer. One request in a quarter of the room asks for a completion.
ACCEL_HOST_DEVICE inline void number_request(const exchange_ref& exchange, std::uint32_t wqebb, mlx5::opcode operation,
                                             std::uint64_t bytes, prepared_request& out) noexcept {
    const bool due = ((wqebb + 1) & (exchange.limit / 4 - 1)) == 0;
    out.control.opmod_idx_opcode = mlx5::opmod_idx_opcode_of(wqebb, operation);
    out.control.flags = due ? mlx5::flag_signalled : std::uint8_t{0};
    out.local.length = mlx5::to_be32(static_cast<std::uint32_t>(bytes));
}

/// The payload goes elsewhere than behind its header: a request of its own before the header's.
ACCEL_HOST_DEVICE_SELDOM inline void put_payload_apart(const exclusive_session& session, const exchange_ref& exchange,
                                                       bool placed, std::uint64_t bytes, std::uint32_t wqebb) noexcept {
    mlx5::work_request to;
    address_payload(exchange, session.is.peer, placed, to);
    prepared_request request = exchange.prepared;
    request.control.immediate = mlx5::be32{};
    request.remote = {mlx5::to_be64(to.remote_address), mlx5::to_be32(to.remote_key), mlx5::be32{}};
    request.local.address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(exchange.response));
    number_request(exchange, wqebb, mlx5::opcode::write, bytes, request);
    put_request(exchange.sends.queue, wqebb, request);
}

/// What has been posted: the number of the WQEBB behind it, and its doorbell.
struct posted_answer {
    std::uint32_t end = 0;
    std::uint64_t doorbell = 0;
};

/// Posts an answer whose header has been written, and rings. Room was kept when its request was taken.
ACCEL_HOST_DEVICE inline posted_answer post_answer(mlx5::queue_place place, const exclusive_session& session,
                                                   const exchange_ref& exchange, const answer& with,
                                                   std::uint32_t first) noexcept {
    const mlx5::send_queue_ref& queue = exchange.sends.queue;
    const bool placed = exchange.target.length > 0 && with.code == status::ok;
    const bool apart = with.length > 0 && (placed || exchange.peer_apart != 0);
    if (apart) put_payload_apart(session, exchange, placed, with.length, first++);
    prepared_request request = exchange.prepared;
    const std::uint64_t behind_header = apart ? 0 : with.length;
    number_request(exchange, first, mlx5::opcode::write_immediate, wire::header_bytes + behind_header, request);
    put_request(queue, first, request);
    std::uint64_t doorbell = 0;
    __builtin_memcpy(&doorbell, &request.control, sizeof doorbell);
    if (place == mlx5::queue_place::gpu) {
        mlx5::ring_early(queue, first + 1, doorbell);
    } else {
        mlx5::publish(queue, first + 1);
        mlx5::ring_with(queue, doorbell);
    }
    return {first + 1, doorbell};
}

/// Behind the doorbell: the slot is looked at again, and its session may end. `known`: nothing else than the answer
/// has changed since the request was taken.
ACCEL_HOST_DEVICE inline void finish_exchange(owned_sessions& mine, const exchange_ref& exchange, bool known) noexcept {
    exclusive_session& session = mine.at.sessions[exchange.session];
    slot_watch& watch = mine.at.watches[first_number(mine, exchange.session) + exchange.slot];
    if (known)
        watch = {exchange.generation, 0};
    else
        watch.away &= ~slot_away::held;
    session.reported = 0;
    --session.held;
    if (!known && session.phase == session_phase::closing) end_session(mine, exchange.session);
    if (mine.stopping != 0) report_all(mine);
}

/// An answer whose doorbell has rung, or that goes nowhere because its session has ended.
struct given_answer {
    bool known = false;  ///< what was read with the request was still so
    bool open = false;
    posted_answer posted;
};

/// What a client waits for: everything up to the doorbell.
ACCEL_HOST_DEVICE inline given_answer give_answer(const owned_sessions& mine, const exchange_ref& exchange,
                                                  const answer& with) noexcept {
    const exclusive_session& session = mine.at.sessions[exchange.session];
    given_answer out;
    // What was read with the request is still so unless the owner has done something else meanwhile.
    out.known = exchange.changes == mine.changes;
    out.open = out.known || session.phase == session_phase::open;
    const std::uint32_t first = out.known ? static_cast<std::uint32_t>(exchange.seen.reserved) : session.posted;
    write_header(exchange, with);
    if (out.open) out.posted = post_answer(mine.at.queues, session, exchange, with, first);
    return out;
}

/// What nobody waits for.
ACCEL_HOST_DEVICE inline void account_for(owned_sessions& mine, const exchange_ref& exchange,
                                          const given_answer& given) noexcept {
    exclusive_session& session = mine.at.sessions[exchange.session];
    if (given.open) {
        session.posted = given.posted.end;
        ++session.replies;
        mine.last = exchange.session;
    } else {
        ++session.counters.dropped;
    }
    ++mine.changes;
    finish_exchange(mine, exchange, given.known);
    if (!given.open) return;
    if (mine.at.queues == mlx5::queue_place::gpu) mlx5::ring_again(exchange.sends.queue, given.posted.doorbell);
    const std::uint32_t released = given.known ? exchange.seen.released : session.released;
    const bool nearly_full = given.posted.end - released > exchange.limit / 4 * 3;
    if (nearly_full) take_completions(mine, exchange.session);
}

/// Ends the exchange, whatever becomes of the answer.
ACCEL_HOST_DEVICE inline status answer_with(owned_sessions& mine, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    const given_answer given = give_answer(mine, exchange, with);
    account_for(mine, exchange, given);
    return given.open ? status::ok : status::peer_lost;
}

/// True: a correct client sends this. Its last word repeats the generation.
ACCEL_HOST_DEVICE inline bool is_request(const session_view& session, std::uint32_t slot, std::uint32_t last_generation,
                                         const wire::slot_header& header) noexcept {
    return is_sane(session.request_capacity, session.response_capacity, slot, header) &&
           header.arrival_word == header.generation && header.generation != last_generation;
}

/// Where the answer goes that the client wants elsewhere. False: the extensions are none.
ACCEL_HOST_DEVICE_SELDOM inline bool read_extensions(const std::byte* header_at, std::uint16_t bytes,
                                                     std::uint64_t response_room, wire::response_target& out) noexcept {
    return wire::find_response_target(header_at - bytes, bytes, out) &&
           (out.length == 0 || response_room <= out.length);
}

/// What a look has found: all of it is under way before any of it is needed.
struct arrival {
    session_view session;
    prepared_request prepared;
    slot_watch watch;
    wire::slot_header header;
};
ACCEL_HOST_DEVICE inline void read_arrival(const place_ref& at, arrival& out) noexcept {
    load_at_once(at.header, out.header);
    load_at_once(at.prepared, out.prepared);
    const std::uint64_t watch = mlx5::load_whole(reinterpret_cast<const std::uint64_t*>(at.watch));
    __builtin_memcpy(static_cast<void*>(&out.watch), &watch, sizeof watch);
    load_at_once(static_cast<const session_view*>(at.session), out.session);
}

/// Fills in all that answering needs. False: no correct client sends this.
ACCEL_HOST_DEVICE inline bool admit(const owned_sessions& mine, const arrival& came, const place_ref& at,
                                    std::int64_t now, exchange_ref& out) noexcept {
    const wire::slot_header& header = came.header;
    const session_view& session = came.session;
    if (!is_request(session, at.slot, came.watch.generation, header)) return false;
    out.target = {};
    const std::uint16_t extensions = header.extension_bytes;
    if (extensions != 0 && !read_extensions(at.header, extensions, header.response_room, out.target)) return false;
    out.prepared = came.prepared;
    out.sends.queue = session.sends;
    out.seen = {session.posted, session.released};
    out.limit = session.limit;
    out.changes = mine.changes;
    out.peer_apart = session.peer_payloads != 0 ? 1 : 0;
    out.session_id = session.id;
    out.response = came.prepared.response;
    out.clock_offset = mine.clock.clock_offset;
    out.request = at.header + wire::header_bytes;
    out.request_bytes = header.length;
    out.response_room = header.response_room;
    out.trace_id = header.trace_id;
    out.target_number = header.target;
    out.deadline = own_deadline(out.clock_offset, header.deadline_ns);
    out.arrival = now;
    out.session = at.session_index;
    out.slot = at.slot;
    out.generation = header.generation;
    return true;
}

/// Its client's patience has ended on the way.
ACCEL_HOST_DEVICE_SELDOM inline void refuse_late(owned_sessions& mine, const exchange_ref& exchange) noexcept {
    ++mine.at.sessions[exchange.session].counters.expired;
    (void)answer_with(mine, exchange, {status::timed_out, 0, 0});
}
ACCEL_HOST_DEVICE_SELDOM inline void refuse_wrong(owned_sessions& mine, std::uint32_t index) noexcept {
    exclusive_session& session = mine.at.sessions[index];
    ++session.counters.dropped;
    session.reported = 0;
    fail_session(mine, index, status::protocol_error);
}

/// A slot has a new header, which an acquire has seen. `again`: its request has been refused, or has to wait.
ACCEL_HOST_DEVICE inline status take_on(owned_sessions& mine, const place_ref& at, std::int64_t now,
                                        exchange_ref& out) noexcept {
    exclusive_session& session = *at.session;
    arrival came;
    read_arrival(at, came);
    if (!has_room(came.session)) {
        block(mine, at.session_index);
        return status::again;
    }
    if (!admit(mine, came, at, now, out)) {
        refuse_wrong(mine, at.session_index);
        return status::again;
    }
    *at.watch = {out.generation, slot_away::held};
    session.held = came.session.held + 1;
    if (out.deadline <= now) {
        refuse_late(mine, out);
        return status::again;
    }
    session.requests = came.session.requests + 1;
    return status::ok;
}

/// By the first of the lanes. `place`: what they have found. The one behind it is looked at first the next time, so
/// that no session goes short of another's requests.
ACCEL_HOST_DEVICE inline status use_look(owned_sessions& mine, std::uint32_t place, std::int64_t now,
                                         exchange_ref& out) noexcept {
    if (place == no_slot) {
        use_idle_time(mine, now);
    } else if (now - mine.orders_due > latest_orders_ns) {
        take_orders(mine, now);
        place = no_slot;  // its session may have ended: the next look finds it if not
    }
    if (mine.stopping != 0) {
        report_all(mine);
        return status::closed;
    }
    if (place == no_slot) return status::again;
    mine.next = place + 1 == places_of(mine) ? 0 : place + 1;
    return take_on(mine, look_up(mine, place), now, out);
}

/// One look at all slots, by the scope's lanes together. The clock is read once, before it.
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status look_once(owned_sessions& mine, exchange_ref& out,
                                                        std::int64_t& now) noexcept {
    now = clock_ns();
    const std::uint32_t place = find_new<Scope>(mine);
    std::uint32_t outcome = 0;
    if (lanes<Scope>::rank() == 0) outcome = static_cast<std::uint32_t>(use_look(mine, place, now, out));
    return static_cast<status>(lanes<Scope>::of(outcome, 0));
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
    keep_at_hand(out);
    return status::ok;
}

}  // namespace accel::device::detail
