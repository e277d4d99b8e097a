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

/// What an answer needs of its exchange, read at once.
struct answered_exchange {
    std::uint32_t at_hand;
    std::uint32_t slot_copy;
    std::uint32_t session_copy;
    std::uint32_t target_length;
    std::uint32_t own_at_hand;  ///< of the owner, now
    engine by;
    mlx5::queue_place queues;
    header_fields fields;
};
ACCEL_HOST_DEVICE_INLINE answered_exchange read_exchange(const owned_sessions& mine,
                                                         const exchange_ref& exchange) noexcept {
    answered_exchange out;
    out.at_hand = exchange.at_hand;
    out.slot_copy = exchange.slot_copy;
    out.session_copy = exchange.session_copy;
    out.target_length = static_cast<std::uint32_t>(exchange.target.length != 0);
    out.own_at_hand = mine.at_hand;
    out.by = mine.at.by;
    out.queues = mine.at.queues;
    out.fields = fields_of(exchange);
    need_now(out.at_hand);
    need_now(out.slot_copy);
    need_now(out.session_copy);
    need_now(out.target_length);
    need_now(out.own_at_hand);
    need_now(out.fields);
    return out;
}

/// What a client waits for: everything up to the doorbell. Room was kept when its request was taken.
ACCEL_HOST_DEVICE_INLINE given_answer give_answer(owned_sessions& mine, const exchange_ref& exchange,
                                                  const answer& with) noexcept {
    const answered_exchange asked = read_exchange(mine, exchange);
    if (asked.own_at_hand != asked.at_hand) [[unlikely]]
        fetch(mine, asked.at_hand);
    // By value: all this is read at once.
    session_view queue = mine.sessions[asked.session_copy];
    prepared_header prepared = mine.slots[asked.slot_copy].prepared;
    need_now(queue);
    need_now(prepared);
    write_header(asked.fields, with, prepared.operation == mlx5::opcode::write);
    if (queue.plain == 0 || asked.target_length != 0) [[unlikely]]
        return give_in_parts(mine, exchange, with);
    given_answer out;
    out.open = true;
    const std::uint32_t bytes = wire::header_bytes + static_cast<std::uint32_t>(with.length);
    out.posted = post_header(asked.by, asked.queues, queue, prepared, asked.fields.slot, queue.posted, bytes);
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

/// A header whose last word has been seen before its first: the adapter may write them in any order, and the next look
/// finds all of it. So often in a second; no correct client comes near that.
inline constexpr std::uint32_t max_torn = 4096;
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

/// What taking a request on needs of the owner's copies. All of it is read while the header is under way.
struct turn_copies {
    std::byte* header;
    slot_watch* watch_at;
    exclusive_session* session_at;
    std::byte* response;
    std::uint64_t session_id;
    std::uint64_t requests;
    std::int64_t clock_offset;
    std::int64_t orders_due;
    std::uint32_t generation;  ///< of the slot's last request
    std::uint32_t session;
    std::uint32_t slot;
    std::uint32_t request_capacity;
    std::uint32_t response_capacity;
    std::uint32_t limit;
    std::uint32_t posted;
    std::uint32_t released;
    std::uint32_t held;
    std::uint32_t stopping;
    std::uint32_t at_hand;
    std::uint32_t slot_copy;
    std::uint32_t session_copy;
    std::uint32_t places;
};
/// `place` is at hand.
ACCEL_HOST_DEVICE_INLINE void read_copies(const owned_sessions& mine, std::uint32_t place, turn_copies& out) noexcept {
    out.at_hand = mine.at_hand;
    out.stopping = mine.stopping;
    out.orders_due = mine.orders_due;
    out.clock_offset = mine.clock.clock_offset;
    out.places = mine.places;
    const bool all = out.at_hand == all_at_hand;
    out.slot_copy = all ? place : 0;
    out.session_copy = all ? place >> mine.at.slot_bits : 0;
    const owned_slot& slot = mine.slots[out.slot_copy];
    out.header = slot.header;
    out.generation = slot.watch.generation;
    out.watch_at = slot.watch_at;
    out.session_at = slot.session_at;
    out.session = slot.session;
    out.slot = slot.slot;
    out.response = slot.prepared.response;
    const session_view& session = mine.sessions[out.session_copy];
    out.session_id = session.id;
    out.requests = session.requests;
    out.request_capacity = session.request_capacity;
    out.response_capacity = session.response_capacity;
    out.limit = session.limit;
    out.posted = session.posted;
    out.released = session.released;
    out.held = session.held;
    need_now(out);
}

/// True: a correct client sends this, whatever its extensions are. Its last word repeats the generation. No branch: a
/// client waits for it.
ACCEL_HOST_DEVICE_INLINE bool is_request(const arrival& came, const turn_copies& copies) noexcept {
    constexpr std::uint32_t known_flags = std::uint32_t{wire::header_flag::known} << 16;
    constexpr std::uint32_t expected = wire::protocol_version | static_cast<std::uint32_t>(wire::message_kind::request)
                                                                    << 8;
    const std::uint32_t generation = came.first.words[2];
    const std::uint32_t other = ((came.first.words[0] & ~known_flags) ^ expected) |
                                (came.first.words[1] ^ copies.slot) | (came.last_word ^ generation) |
                                static_cast<std::uint32_t>(came.length >> 32);
    const bool too_long = static_cast<std::uint32_t>(came.length) > copies.request_capacity;
    const bool wants_too_much = came.third.words[1] > copies.response_capacity;
    return !((other != 0) | too_long | wants_too_much | (generation == copies.generation));
}

/// What is not as in most turns: no room, no good request, a late one, or one with extensions. `ok`: it is taken on
/// all the same.
ACCEL_HOST_DEVICE_SELDOM inline status look_closely(owned_sessions& mine, const turn_copies& copies,
                                                    const arrival& came, std::int64_t now, exchange_ref& out) noexcept {
    if (!has_room(copies)) return block(mine, copies.session);
    if (!is_request(came, copies)) {
        const bool torn = came.first.words[2] != came.last_word;
        return torn ? look_again(mine, copies.session, now) : refuse_wrong(mine, copies.session);
    }
    const std::uint32_t code_and_extensions = came.first.words[3];
    if (code_and_extensions != 0 && !read_extensions(copies.header, code_and_extensions, out))
        return refuse_wrong(mine, copies.session);
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
    out.touched = came.touched[0] ^ came.touched[1];
}

/// A slot has a new header, which an acquire has seen. `again`: its request has been refused, or has to wait.
ACCEL_HOST_DEVICE_INLINE status take_on(owned_sessions& mine, const turn_copies& copies, const arrival& came,
                                        std::int64_t now, exchange_ref& out) noexcept {
    const std::int64_t deadline = own_deadline(
        copies.clock_offset, static_cast<std::int64_t>(std::uint64_t{came.third.words[3]} << 32 | came.third.words[2]));
    describe_request(copies, came, now, deadline, out);
    const bool plain = has_room(copies) & is_request(came, copies) & (came.first.words[3] == 0);
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

/// By one of the lanes. `place`: what they have found, of which that lane has `copies`. The one behind it is looked at
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
    const owned_slot& own = mine.slots[rank < most_at_hand ? rank : 0];
    std::byte* header = own.header;
    slot_watch watch = own.watch;
    std::uint32_t places = mine.places;
    std::uint32_t at_hand = mine.at_hand;
    need_now(header);
    need_now(watch);
    need_now(places);
    need_now(at_hand);
    const bool by_all = at_hand == all_at_hand && (side::count() >= most_at_hand || places <= side::count());
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
