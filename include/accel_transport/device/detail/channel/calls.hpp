// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/channel/intake.hpp>

#include <cstddef>
#include <cstdint>

/// One call of a GPU-resident channel: posts its request, and checks its response.
namespace accel::device::detail {

/// The word of a call's slot, if the slot still belongs to the call.
ACCEL_HOST_DEVICE inline bool find_call(const channel_ref& channel, const call_ref& call,
                                        std::uint64_t& word) noexcept {
    if (call.slot >= channel.slots) return false;
    word = load_acquire(&channel.calls[call.slot].word);
    return generation_in(word) == call.generation;
}

/// False: the word is no longer as the caller has seen it.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool move_call(const channel_ref& channel, const call_ref& call, call_phase from,
                                                      call_phase to) noexcept {
    std::uint64_t expected = word_of(call.generation, from);
    return hand_over(&channel.calls[call.slot].word, expected, word_of(call.generation, to));
}

/// `offset`: from `clock_ns` to the server's clock.
ACCEL_HOST_DEVICE inline void write_header(const channel_ref& channel, const call_ref& call, std::uint64_t length,
                                           std::int64_t offset) noexcept {
    wire::slot_header header;
    header.slot = call.slot;
    header.generation = call.generation;
    header.length = length;
    header.trace_id = call.trace_id;
    header.target = call.target;
    header.response_room = static_cast<std::uint32_t>(call.response_room);
    const bool told = offset != unknown_offset && call.deadline < never_ns;
    header.deadline_ns = told ? call.deadline + offset : INT64_MAX;
    if (channel.plain_requests != 0) header.arrival_word = call.generation;
    store_header(header, call.request - wire::header_bytes);
}
ACCEL_HOST_DEVICE inline void write_header(const channel_ref& channel, const call_ref& call,
                                           std::uint64_t length) noexcept {
    write_header(channel, call, length, mlx5::load_whole(&channel.state->clock_offset));
}

/// The arguments of a submit. `now`: by `clock_ns`.
ACCEL_HOST_DEVICE inline void set_terms(const channel_ref& channel, const call_options& with, std::int64_t now,
                                        call_ref& call) noexcept {
    const std::int64_t timeout = with.timeout_ns > 0 ? with.timeout_ns : channel.call_timeout_ns;
    const bool bounded = with.max_bytes != 0 && with.max_bytes < channel.responses.capacity;
    call.deadline = timeout >= never_ns - now ? never_ns : now + timeout;
    call.trace_id = with.trace_id;
    call.target = with.target;
    call.response_room = bounded ? with.max_bytes : channel.responses.capacity;
}

/// Posts one work request. Waits shortly for room; `again`: there is none, because no completions come.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const channel_ref& channel, mlx5::work_request& request,
                                                   std::int64_t until) noexcept {
    mlx5::counter_snapshot seen = snapshot_of(channel.sends);
    for (;;) {
        const status posted = post(channel.sends, request, seen);
        if (posted != status::again) return posted;
        if (const status over = end_of(channel); over != status::ok) return over;
        if (clock_ns() >= until) return status::again;
        look(channel);
    }
}

/// The work requests of one request: the payload on its own, if it goes elsewhere than after its header. `extensions`:
/// bytes in front of the header.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post_request(const channel_ref& channel, const call_ref& call,
                                                           std::uint64_t length,
                                                           std::uint32_t extensions = 0) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    const std::int64_t patient_until = clock_ns() + patience_ns;
    const std::int64_t until = call.deadline < patient_until ? call.deadline : patient_until;
    const auto payload = reinterpret_cast<std::uint64_t>(call.request);
    const std::uint32_t header_bytes = wire::header_bytes + extensions;
    const std::uint64_t header = payload - header_bytes;
    const bool apart = length > 0 && channel.peer.payloads != 0;
    mlx5::local_range range{header, static_cast<std::uint32_t>(header_bytes + length), channel.requests.key};
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &range;
    if (apart) {
        range = {payload, static_cast<std::uint32_t>(length), channel.requests.key};
        request.remote_address = channel.peer.payloads + channel.peer.payloads_stride * call.slot;
        request.remote_key = channel.peer.payloads_key;
        if (const status sent = post(channel, request, until); sent != status::ok) return sent;
        range = {header, header_bytes, channel.requests.key};
    }
    request.operation = channel.plain_requests != 0 ? mlx5::opcode::write : mlx5::opcode::write_immediate;
    request.immediate = mlx5::to_be32(call.slot);
    request.remote_address = channel.peer.headers + channel.peer.headers_stride * call.slot - extensions;
    request.remote_key = channel.peer.headers_key;
    return post(channel, request, until);
}

/// True: a correct server sends this. The text of a failure may need more room than the call gave the response.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_answer(const channel_ref& channel, const call_ref& call,
                                                      const wire::slot_header& header) noexcept {
    const std::uint64_t most = header.code == status::ok ? call.response_room : channel.responses.capacity;
    return wire::is_well_formed(header, wire::message_kind::response) && header.slot == call.slot &&
           header.generation == call.generation && header.length <= most;
}

/// Only this end uses `again`, for calls in flight.
ACCEL_HOST_DEVICE inline void set_response(const std::byte* from, const wire::slot_header& header,
                                           call_ref& call) noexcept {
    call.outcome = header.code == status::again ? status::overloaded : header.code;
    call.code = header.application_code;
    call.response = from + wire::header_bytes;
    call.response_bytes = header.length;
}

ACCEL_HOST_DEVICE inline status take_response(const channel_ref& channel, call_ref& call) noexcept {
    const std::byte* const from = header_of(channel.responses, call.slot);
    wire::slot_header header;
    if (await_header(from, call.generation, true, header) && is_answer(channel, call, header)) {
        set_response(from, header, call);
        (void)count_up(&channel.state->completed);
    } else {
        fail_channel(channel, status::protocol_error);
        call.outcome = status::peer_lost;
        (void)count_up(&channel.state->ended_early);
    }
    (void)move_call(channel, call, call_phase::arrived, call_phase::ended);
    return call.outcome;
}

ACCEL_HOST_DEVICE inline void tell_cancelled(const channel_ref& channel, const call_ref& call) noexcept {
    tell_cancelled(channel, call, count_up(&channel.state->cancels) + 1);
}

/// Ends a call before its response, unless that is there already.
ACCEL_HOST_DEVICE inline status end_early(const channel_ref& channel, call_ref& call, status why) noexcept {
    if (!move_call(channel, call, call_phase::in_flight, call_phase::overdue)) return take_response(channel, call);
    call.outcome = why;
    (void)count_up(&channel.state->ended_early);
    if (why == status::timed_out && is_deadline_untold(call)) tell_cancelled(channel, call);
    return why;
}

/// The state of a call now; `again`: it is in flight.
[[nodiscard]] ACCEL_HOST_DEVICE inline status settle(const channel_ref& channel, call_ref& call) noexcept {
    std::uint64_t word = 0;
    if (!find_call(channel, call, word)) return status::invalid_state;
    switch (phase_in(word)) {
        case call_phase::in_flight:
            break;
        case call_phase::arrived:
            return take_response(channel, call);
        case call_phase::ended:
        case call_phase::overdue:
            return call.outcome;
        default:
            return status::invalid_state;
    }
    if (const status over = end_of(channel); over != status::ok) return end_early(channel, call, over);
    if (clock_ns() >= call.deadline) return end_early(channel, call, status::timed_out);
    return status::again;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t next_generation(std::uint32_t last) noexcept {
    return last + 1 == 0 ? 1 : last + 1;
}

/// The call that follows generation `last` in its slot.
[[nodiscard]] ACCEL_HOST_DEVICE inline call_ref next_call(const channel_ref& channel, std::uint32_t slot,
                                                          std::uint32_t last) noexcept {
    call_ref out;
    out.request = header_of(channel.requests, slot) + wire::header_bytes;
    out.request_room = channel.requests.capacity;
    out.slot = slot;
    out.generation = next_generation(last);
    return out;
}

/// A slot that was free begins its next generation. Returns the last one.
ACCEL_HOST_DEVICE inline std::uint32_t begin_slot(const channel_ref& channel, std::uint32_t slot) noexcept {
    call_entry& entry = channel.calls[slot];
    const std::uint32_t last = generation_in(load_relaxed(&entry.word));
    std::uint64_t expected = word_of(last, call_phase::free);
    (void)hand_over(&entry.word, expected, word_of(next_generation(last), call_phase::begun));
    return last;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status begin_call(const channel_ref& channel, call_ref& out) noexcept {
    if (!is_own_version(channel.layout) || channel.state == nullptr) return status::unsupported;
    if (const status over = refusal_of(channel); over != status::ok) return over;
    std::uint32_t slot = take_slot(channel);
    if (slot == no_call) {
        look(channel);  // a late response may set one free
        slot = take_slot(channel);
        if (slot == no_call) return status::again;
    }
    out = next_call(channel, slot, begin_slot(channel, slot));
    return status::ok;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status submit_call(const channel_ref& channel, call_ref& call,
                                                          std::uint64_t length, const call_options& with) noexcept {
    if (call.slot >= channel.slots) return status::invalid_state;
    if (length > channel.requests.capacity) return status::message_too_large;
    if (with.timeout_ns < 0) return status::invalid_argument;
    if (const status over = refusal_of(channel); over != status::ok) return over;
    // Before posting: the response may arrive before this returns.
    if (!move_call(channel, call, call_phase::begun, call_phase::in_flight)) return status::invalid_state;
    set_terms(channel, with, clock_ns(), call);
    write_header(channel, call, length);
    const status sent = post_request(channel, call, length);
    if (sent == status::ok) {
        (void)count_up(&channel.state->submitted);
        return sent;
    }
    if (!move_call(channel, call, call_phase::in_flight, call_phase::begun)) {
        fail_channel(channel, status::protocol_error);  // an answer without a request
        return status::peer_lost;
    }
    return sent;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status poll_call(const channel_ref& channel, call_ref& call) noexcept {
    const status found = settle(channel, call);
    if (found != status::again) return found;
    look(channel);
    return settle(channel, call);
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_for_call(const channel_ref& channel, call_ref& call,
                                                            std::int64_t timeout_ns) noexcept {
    for (const std::int64_t start = clock_ns();;) {
        const status found = poll_call(channel, call);
        if (found != status::again || clock_ns() - start >= timeout_ns) return found;
    }
}

ACCEL_HOST_DEVICE inline status cancel_call(const channel_ref& channel, call_ref& call) noexcept {
    if (call.slot >= channel.slots) return status::invalid_state;
    if (!move_call(channel, call, call_phase::in_flight, call_phase::overdue)) return status::invalid_state;
    call.outcome = status::cancelled;
    (void)count_up(&channel.state->ended_early);
    tell_cancelled(channel, call);
    return status::ok;
}

ACCEL_HOST_DEVICE inline status release_call(const channel_ref& channel, const call_ref& call) noexcept {
    std::uint64_t word = 0;
    if (!find_call(channel, call, word)) return status::invalid_state;
    if (phase_in(word) == call_phase::overdue) {
        (void)count_up(&channel.state->quarantined);
        if (move_call(channel, call, call_phase::overdue, call_phase::quarantined)) return status::ok;
        count_down(&channel.state->quarantined);  // the response has come just now
    }
    const bool released = move_call(channel, call, call_phase::ended, call_phase::free) ||
                          move_call(channel, call, call_phase::begun, call_phase::free);
    if (!released) return status::invalid_state;
    put_slot_back(channel, call.slot);
    return status::ok;
}

}  // namespace accel::device::detail
