// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/exclusive_intake.hpp>
#include <accel_transport/device/detail/owned_sends.hpp>
#include <accel_transport/device/detail/service_answers.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>

/// What becomes of a request whose session has one owner. From the header's arrival to the doorbell there is no lock,
/// no load from the host's memory, and no atomic operation whose result anything waits for.
namespace accel::device::detail {

ACCEL_HOST_DEVICE_SELDOM inline void put_payload_by_proxy(const owned_sessions& mine, const exchange_ref& exchange,
                                                          mlx5::work_request& request, std::uint64_t bytes,
                                                          std::uint32_t number) noexcept {
    const exclusive_session& session = mine.at.sessions[exchange.session];
    const mlx5::local_range from{reinterpret_cast<std::uint64_t>(exchange.response), static_cast<std::uint32_t>(bytes),
                                 session.is.responses.key};
    request.ranges = 1;
    request.first = &from;
    proxy::order_payload_before_descriptor();
    proxy::fill(session.proxied, number, request);
}

/// The payload goes elsewhere than behind its header: a request of its own before the header's.
ACCEL_HOST_DEVICE_SELDOM inline void put_payload_apart(const owned_sessions& mine, const session_view& queue,
                                                       const prepared_header& prepared, const exchange_ref& exchange,
                                                       bool placed, std::uint64_t bytes, std::uint32_t wqebb) noexcept {
    mlx5::work_request to;
    address_payload(exchange, mine.at.sessions[exchange.session].is.peer, placed, to);
    if (mine.at.by == engine::proxy) return put_payload_by_proxy(mine, exchange, to, bytes, wqebb);
    small_request request = request_of(queue, prepared, wqebb, mlx5::opcode::write, bytes);
    request.control.immediate = mlx5::be32{};
    request.remote = {mlx5::to_be64(to.remote_address), mlx5::to_be32(to.remote_key), mlx5::be32{}};
    request.local.address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(exchange.response));
    put_request(queue, wqebb, request);
}

/// An answer whose doorbell has rung, or that goes nowhere because its session has ended.
struct given_answer {
    bool open = false;
    posted_request posted;
};

/// An answer whose payload does not go behind its header, or whose session has ended.
ACCEL_HOST_DEVICE_SELDOM inline given_answer give_in_parts(owned_sessions& mine, const exchange_ref& exchange,
                                                           const answer& with) noexcept {
    const session_view& queue = mine.sessions[exchange.session_copy];
    const prepared_header& prepared = mine.slots[exchange.slot_copy].prepared;
    given_answer out;
    out.open = queue.phase == session_phase::open;
    if (!out.open) return out;
    std::uint32_t first = queue.posted;
    const bool placed = exchange.target.length > 0 && with.code == status::ok;
    const bool apart = with.length > 0 && (placed || queue.payloads_apart != 0);
    if (apart) put_payload_apart(mine, queue, prepared, exchange, placed, with.length, first++);
    const std::uint32_t behind_header = apart ? 0 : static_cast<std::uint32_t>(with.length);
    const std::uint32_t header = wire::header_bytes;
    out.posted = post_header(mine.at.by, mine.at.queues, queue, prepared, exchange.slot, first, header + behind_header);
    return out;
}

/// What a client waits for: everything up to the doorbell. Room was kept when its request was taken.
ACCEL_HOST_DEVICE_INLINE given_answer give_answer(owned_sessions& mine, const exchange_ref& exchange,
                                                  const answer& with) noexcept {
    if (mine.at_hand != exchange.at_hand) [[unlikely]]
        fetch(mine, exchange.at_hand);
    // By value: all this is read at once.
    const session_view queue = mine.sessions[exchange.session_copy];
    const prepared_header prepared = mine.slots[exchange.slot_copy].prepared;
    const engine by = mine.at.by;
    const mlx5::queue_place place = mine.at.queues;
    const std::uint32_t slot = exchange.slot;
    const bool plain = queue.plain != 0 && exchange.target.length == 0;
    write_header(exchange, with, prepared.operation == mlx5::opcode::write);
    if (!plain) [[unlikely]]
        return give_in_parts(mine, exchange, with);
    given_answer out;
    out.open = true;
    const std::uint32_t header = wire::header_bytes;
    out.posted =
        post_header(by, place, queue, prepared, slot, queue.posted, header + static_cast<std::uint32_t>(with.length));
    return out;
}

/// What nobody waits for: one doorbell comes behind the record, and the slot is looked at again.
ACCEL_HOST_DEVICE_INLINE void account_for(owned_sessions& mine, const exchange_ref& exchange,
                                          const given_answer& given) noexcept {
    session_view& copy = mine.sessions[exchange.session_copy];
    owned_slot& slot = mine.slots[exchange.slot_copy];
    exclusive_session& session = *slot.session_at;
    if (given.open) {
        ring_again(mine.at.by, mine.at.queues, copy, given.posted);
        session.posted = copy.posted = given.posted.end;
        session.replies = ++copy.replies;
        mine.last = exchange.session;
    } else {
        ++session.counters.dropped;
    }
    slot.watch.away &= ~slot_away::held;
    *slot.watch_at = slot.watch;
    session.held = --copy.held;
    session.reported = copy.reported = 0;
    const bool nearly_full = given.open && copy.posted - copy.released > copy.limit / 4 * 3;
    if (copy.phase == session_phase::closing) end_session(mine, exchange.session);
    if (mine.stopping != 0) report_all(mine);
    if (nearly_full) take_completions(mine, exchange.session);
}

/// Ends the exchange, whatever becomes of the answer.
ACCEL_HOST_DEVICE_INLINE status answer_with(owned_sessions& mine, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    const given_answer given = give_answer(mine, exchange, with);
    account_for(mine, exchange, given);
    return given.open ? status::ok : status::peer_lost;
}

/// A header, as it was read once, and what its payload begins with: read with it, so that it is in the cache of the
/// processor when the service comes to it.
struct arrival {
    loaded_quad first;
    std::uint64_t length;
    std::uint64_t trace_id;
    loaded_quad third;
    std::uint32_t last_word;
    std::uint32_t touched[2];
};
/// Behind an acquire of the header's last word. All of it is under way before any of it is needed.
ACCEL_HOST_DEVICE_INLINE void read_arrival(std::byte* header, arrival& out) noexcept {
    load_quad(reinterpret_cast<const loaded_quad*>(header), out.first);
    out.length = load_far(reinterpret_cast<const std::uint64_t*>(header) + 2);
    out.trace_id = load_far(reinterpret_cast<const std::uint64_t*>(header) + 3);
    load_quad(reinterpret_cast<const loaded_quad*>(header) + 2, out.third);
    out.last_word = load_far(arrival_word(header));
#if defined(__CUDA_ARCH__)
    constexpr std::uint32_t sector = 32;  // what a load brings into the cache
    const std::byte* const payload = header + wire::header_bytes;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(out.touched[0]) : "l"(payload) : "memory");
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(out.touched[1]) : "l"(payload + sector) : "memory");
#endif
}
ACCEL_HOST_DEVICE_INLINE wire::slot_header header_of(const arrival& came) noexcept {
    struct {
        loaded_quad first;
        std::uint64_t length;
        std::uint64_t trace_id;
        loaded_quad third;
        std::uint32_t not_of_requests[3];
        std::uint32_t last_word;
    } const whole{came.first, came.length, came.trace_id, came.third, {}, came.last_word};
    wire::slot_header out;
    static_assert(sizeof whole == sizeof out);
    __builtin_memcpy(static_cast<void*>(&out), &whole, sizeof out);
    return out;
}

/// A header with more in it than most have: extensions, of which one may say where the client wants the answer. False:
/// no correct client sends this.
ACCEL_HOST_DEVICE_SELDOM inline bool read_extensions(const std::byte* header, std::uint32_t code_and_bytes,
                                                     exchange_ref& out) noexcept {
    const std::uint32_t code = code_and_bytes & 0xffffU;
    const std::uint32_t bytes = code_and_bytes >> 16;
    if (code >= status_count || bytes > wire::extension_room || bytes % 8 != 0) return false;
    return wire::find_response_target(header - bytes, bytes, out.target) &&
           (out.target.length == 0 || out.response_room <= out.target.length);
}

/// True: a correct client sends this, whatever its extensions are. Its last word repeats the generation. No branch: a
/// client waits for it.
ACCEL_HOST_DEVICE_INLINE bool is_request(const arrival& came, const session_view& session, std::uint32_t slot,
                                         std::uint32_t last_generation) noexcept {
    constexpr std::uint32_t known_flags = std::uint32_t{wire::header_flag::known} << 16;
    constexpr std::uint32_t expected = wire::protocol_version | static_cast<std::uint32_t>(wire::message_kind::request)
                                                                    << 8;
    const std::uint32_t generation = came.first.words[2];
    const std::uint32_t other = ((came.first.words[0] & ~known_flags) ^ expected) | (came.first.words[1] ^ slot) |
                                (came.last_word ^ generation) | static_cast<std::uint32_t>(came.length >> 32);
    const bool too_long = static_cast<std::uint32_t>(came.length) > session.request_capacity;
    const bool wants_too_much = came.third.words[1] > session.response_capacity;
    return !((other != 0) | too_long | wants_too_much | (generation == last_generation));
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
    if (!is_request(came, session, slot.slot, slot.watch.generation)) [[unlikely]]
        return refuse_wrong(mine, slot.session);
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
