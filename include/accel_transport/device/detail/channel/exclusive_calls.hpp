// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/channel/exclusive_intake.hpp>

#include <cstddef>
#include <cstdint>

/// One call of a channel that has one owner. From `submit` to the doorbell there is no lock, no load from the host's
/// memory, and no atomic operation. A shared channel's calls go the shared way.
namespace accel::device::detail {

[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_shared(const owned_channel& mine) noexcept {
    return mine.channel.exclusive.channel == nullptr;
}

/// The state of a call's slot, if the slot still belongs to the call.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool find_call(const owned_channel& mine, const call_ref& call,
                                                      owned_call& out) noexcept {
    if (call.slot >= mine.channel.exclusive.slots) return false;
    out = call_at(mine, call.slot);
    return out.generation == call.generation;
}

ACCEL_HOST_DEVICE inline void count(owned_channel& mine, std::uint64_t channel_counters::*what) noexcept {
    mine.channel.exclusive.channel->state.counters.*what = ++(mine.state.counters.*what);
}
ACCEL_HOST_DEVICE inline void count_quarantined(owned_channel& mine) noexcept {
    mine.channel.exclusive.channel->state.counters.quarantined = ++mine.state.counters.quarantined;
}

/// The first free slot begins its next generation. Returns the last one.
ACCEL_HOST_DEVICE inline std::uint32_t begin_slot(owned_channel& mine, std::uint32_t slot) noexcept {
    owned_call call = call_at(mine, slot);
    const std::uint32_t last = call.generation;
    mine.channel.exclusive.channel->state.first_free = mine.state.first_free = call.next;
    call.generation = next_generation(last);
    call.phase = call_phase::begun;
    call.torn = 0;
    set_call(mine, slot, call);
    return last;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status begin_call(owned_channel& mine, call_ref& out) noexcept {
    if (is_shared(mine)) return begin_call(mine.channel, out);
    if (const status over = refusal_of(mine); over != status::ok) return over;
    if (mine.state.first_free == no_call) [[unlikely]] {
        constexpr std::uint32_t slots_a_look = 64;
        take_late_responses(mine, slots_a_look);
        const std::int64_t now = clock_ns();
        if (now >= mine.orders_due) look_elsewhere(mine, now);
        if (mine.state.first_free == no_call) return status::again;
    }
    const std::uint32_t slot = mine.state.first_free;
    out = next_call(mine.channel, slot, begin_slot(mine, slot));
    return status::ok;
}

// Submitting.

[[nodiscard]] ACCEL_HOST_DEVICE inline bool has_room(const owned_sends& sends, std::uint32_t wqebbs) noexcept {
    return sends.posted - sends.released + wqebbs <= sends.limit;
}

/// Waits shortly for room; `again`: there is none, because no completions come.
[[nodiscard]] ACCEL_HOST_DEVICE_SELDOM inline status make_room(owned_channel& mine, std::uint32_t wqebbs,
                                                               std::int64_t timeout_ns) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    const std::int64_t start = clock_ns();
    const std::int64_t patience = timeout_ns < patience_ns ? timeout_ns : patience_ns;
    for (;;) {
        take_completions(mine);
        if (has_room(mine.state, wqebbs)) return status::ok;
        const std::int64_t now = clock_ns();
        if (now >= mine.orders_due) look_elsewhere(mine, now);
        if (const status over = end_of(mine); over != status::ok) return over;
        if (now - start >= patience) return status::again;
    }
}

/// A write of its own, in front of that of a header.
struct early_write {
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t to = 0;
    std::uint32_t key = 0;
};
ACCEL_HOST_DEVICE inline void put_by_proxy(const owned_channel& mine, const early_write& what,
                                           std::uint32_t number) noexcept {
    const mlx5::local_range from{reinterpret_cast<std::uint64_t>(what.from), static_cast<std::uint32_t>(what.bytes),
                                 mine.channel.requests.key};
    mlx5::work_request to;
    to.ranges = 1;
    to.first = &from;
    to.remote_address = what.to;
    to.remote_key = what.key;
    proxy::order_payload_before_descriptor();
    proxy::fill(mine.channel.exclusive.channel->proxied, number, to);
}
ACCEL_HOST_DEVICE_SELDOM inline void put_payload_by_proxy(const owned_channel& mine, const call_ref& call,
                                                          std::uint64_t length, std::uint32_t number) noexcept {
    const peer_slots_layout& peer = mine.channel.peer;
    const std::uint64_t to = peer.payloads + peer.payloads_stride * call.slot;
    put_by_proxy(mine, {call.request, length, to, peer.payloads_key}, number);
}

/// A payload that does not go after its header.
ACCEL_HOST_DEVICE_INLINE void put_payload(const owned_channel& mine, const prepared_call& prepared,
                                          const call_ref& call, std::uint64_t length) noexcept {
    const std::uint32_t number = mine.state.posted;
    if (mine.channel.exclusive.by == engine::proxy) [[unlikely]]
        return put_payload_by_proxy(mine, call, length, number);
    small_request request = request_of(mine.state, prepared.header, number, mlx5::opcode::write, length);
    request.control.immediate = mlx5::be32{};
    request.remote = prepared.payload_to;
    request.local.address = prepared.payload_address;
    put_request(mine.state, number, request);
}

/// Extensions in front of a header, which the next request rings for. There is room.
ACCEL_HOST_DEVICE_SELDOM inline void put_extensions(owned_channel& mine, const call_ref& call,
                                                    std::uint32_t bytes) noexcept {
    const channel_ref& channel = mine.channel;
    const early_write what{call.request - wire::header_bytes - bytes, bytes,
                           channel.peer.headers + channel.peer.headers_stride * call.slot - bytes,
                           channel.peer.headers_key};
    const std::uint32_t number = mine.state.posted++;
    if (channel.exclusive.by == engine::proxy) return put_by_proxy(mine, what, number);
    prepared_header prepared = channel.exclusive.prepared[call.slot].header;
    prepared.immediate = mlx5::be32{};
    prepared.remote = {mlx5::to_be64(what.to), mlx5::to_be32(what.key), mlx5::be32{}};
    prepared.address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(what.from));
    put_request(mine.state, number, request_of(mine.state, prepared, number, mlx5::opcode::write, bytes));
}

/// Everything after the header, up to the doorbell. There is room.
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE posted_request post_call(const owned_channel& mine, const call_ref& call,
                                                                std::uint64_t length, bool apart) noexcept {
    const exclusive_channel_ref& at = mine.channel.exclusive;
    const prepared_call prepared = call.slot < max_calls_at_hand ? mine.prepared[call.slot] : at.prepared[call.slot];
    if (apart) put_payload(mine, prepared, call, length);
    const std::uint32_t header = wire::header_bytes;
    const std::uint32_t bytes = apart ? header : header + static_cast<std::uint32_t>(length);
    return post_header(at.by, at.queues, mine.state, prepared.header, call.slot, mine.state.posted + (apart ? 1 : 0),
                       bytes);
}

/// After the doorbell.
ACCEL_HOST_DEVICE_INLINE void end_post(owned_channel& mine, const posted_request& posted) noexcept {
    const exclusive_channel_ref& at = mine.channel.exclusive;
    ring_again(at.by, at.queues, mine.state, posted);
    at.channel->state.posted = mine.state.posted = posted.end;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status submit_call(owned_channel& mine, call_ref& call, std::uint64_t length,
                                                          const call_options& with) noexcept {
    constexpr std::int64_t latest_ns = 1'000'000;  // where responses leave no time for anything else
    if (is_shared(mine)) return submit_call(mine.channel, call, length, with);
    owned_call slot;
    if (!find_call(mine, call, slot)) return status::invalid_state;
    if (length > mine.channel.requests.capacity) return status::message_too_large;
    if (with.timeout_ns < 0) return status::invalid_argument;
    if (const status over = refusal_of(mine); over != status::ok) return over;
    if (slot.phase != call_phase::begun) return status::invalid_state;
    const std::int64_t now = clock_ns();
    set_terms(mine.channel, with, now, call);
    const bool apart = length > 0 && mine.channel.peer.payloads != 0;
    const std::uint32_t wqebbs = apart ? 2 : 1;
    if (!has_room(mine.state, wqebbs)) [[unlikely]] {
        const status made = make_room(mine, wqebbs, call.deadline - now);
        if (made != status::ok) return made;
    }
    write_header(mine.channel, call, length, mine.clock.clock_offset);
    const posted_request posted = post_call(mine, call, length, apart);
    // Nobody waits for what follows.
    end_post(mine, posted);
    set_phase(mine, call.slot, call_phase::in_flight);
    count(mine, &channel_counters::submitted);
    if (now - mine.orders_due > latest_ns) look_elsewhere(mine, now);
    return status::ok;
}

// Its end.

/// A header that is no answer to the call. `again`: not all of it has been seen.
ACCEL_HOST_DEVICE_SELDOM inline status refuse_response(owned_channel& mine, call_ref& call, bool torn) noexcept {
    owned_call slot = call_at(mine, call.slot);
    if (torn && ++slot.torn <= max_torn) {
        set_call(mine, call.slot, slot);
        return status::again;
    }
    fail_channel(mine, status::protocol_error);
    call.outcome = status::peer_lost;
    count(mine, &channel_counters::ended_early);
    set_phase(mine, call.slot, call_phase::ended);
    return call.outcome;
}

/// The header is read once: the server can change it at any time. `again`: its last word has come before its first.
ACCEL_HOST_DEVICE_INLINE status take_response(owned_channel& mine, call_ref& call) noexcept {
    const std::byte* const from = header_of(mine.channel.responses, call.slot);
    wire::slot_header header;
    load_at_once(from, header);
    if (!is_answer(mine.channel, call, header)) [[unlikely]]
        return refuse_response(mine, call, header.generation != call.generation);
    set_response(from, header, call);
    count(mine, &channel_counters::completed);
    set_phase(mine, call.slot, call_phase::ended);
    return call.outcome;
}

ACCEL_HOST_DEVICE inline void tell_cancelled(owned_channel& mine, const call_ref& call) noexcept {
    const std::uint32_t number = ++mine.state.counters.cancels;
    mine.channel.exclusive.channel->state.counters.cancels = number;
    tell_cancelled(mine.channel, call, number);
}

/// Ends a call before its response.
ACCEL_HOST_DEVICE inline status end_early(owned_channel& mine, call_ref& call, status why) noexcept {
    set_phase(mine, call.slot, call_phase::overdue);
    call.outcome = why;
    count(mine, &channel_counters::ended_early);
    if (why == status::timed_out && is_deadline_untold(call)) tell_cancelled(mine, call);
    return why;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status poll_call(owned_channel& mine, call_ref& call) noexcept {
    if (is_shared(mine)) return poll_call(mine.channel, call);
    owned_call slot;
    if (!find_call(mine, call, slot)) return status::invalid_state;
    if (slot.phase == call_phase::ended || slot.phase == call_phase::overdue) return call.outcome;
    if (slot.phase != call_phase::in_flight) return status::invalid_state;
    if (has_response(mine, call.slot, call.generation)) {
        const status taken = take_response(mine, call);
        if (taken != status::again) return taken;
    }
    const std::int64_t now = clock_ns();
    if (now >= mine.orders_due) look_elsewhere(mine, now);
    // Its answer may have come since, and `closed` says that no handler has seen a call.
    const status over = end_of(mine);
    if (over != status::ok && !has_response(mine, call.slot, call.generation)) return end_early(mine, call, over);
    if (now >= call.deadline) return end_early(mine, call, status::timed_out);
    return status::again;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_for_call(owned_channel& mine, call_ref& call,
                                                            std::int64_t timeout_ns) noexcept {
    for (const std::int64_t start = clock_ns();;) {
        const status found = poll_call(mine, call);
        if (found != status::again || clock_ns() - start >= timeout_ns) return found;
    }
}

ACCEL_HOST_DEVICE inline status cancel_call(owned_channel& mine, call_ref& call) noexcept {
    if (is_shared(mine)) return cancel_call(mine.channel, call);
    owned_call slot;
    if (!find_call(mine, call, slot) || slot.phase != call_phase::in_flight) return status::invalid_state;
    if (has_response(mine, call.slot, call.generation)) return status::invalid_state;
    (void)end_early(mine, call, status::cancelled);
    tell_cancelled(mine, call);
    return status::ok;
}

ACCEL_HOST_DEVICE inline status release_call(owned_channel& mine, const call_ref& call) noexcept {
    if (is_shared(mine)) return release_call(mine.channel, call);
    owned_call slot;
    if (!find_call(mine, call, slot)) return status::invalid_state;
    switch (slot.phase) {
        case call_phase::begun:
        case call_phase::ended:
            break;
        case call_phase::overdue:
            if (!has_response(mine, call.slot, call.generation)) {
                set_phase(mine, call.slot, call_phase::quarantined);
                count_quarantined(mine);
                return status::ok;
            }
            count(mine, &channel_counters::stale);
            break;
        default:
            return status::invalid_state;
    }
    free_slot(mine, call.slot);
    return status::ok;
}

}  // namespace accel::device::detail
