#pragma once

#include <accel_transport/device/channel_ref.hpp>
#include <accel_transport/device/detail/channel_intake.hpp>

#include <cstddef>
#include <cstdint>

/// Calls from a GPU: a kernel writes a request, posts it to the adapter itself and waits for the response. A
/// call goes begin → (write the request) → submit → wait or poll → (read the response) → release. Any number
/// of threads use one channel; each call has one thread at a time. The same code runs on a thread of the
/// host, where no GPU is.
namespace accel::device {

/// One call, as a kernel has it. Plain data: keep it in a register, or in shared memory for a block.
struct call_ref {
    std::byte* request = nullptr;  ///< room for the request, to be written in place
    std::uint64_t request_room = 0;
    const std::byte* response = nullptr;  ///< in place, until `release`; bytes of an untrusted peer
    std::uint64_t response_bytes = 0;
    status outcome = status::again;  ///< once it has ended
    std::uint32_t code = 0;          ///< the handler's own, with `application_error`
    std::uint64_t trace_id = 0;      ///< as given to `submit`
    std::int64_t deadline = 0;       ///< by `clock_ns`
    // Internal.
    std::uint64_t response_room = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
};

/// What one call asks for beyond its bytes.
struct call_options {
    std::int64_t timeout_ns = 0;   ///< from now; 0: the channel's `call_timeout`
    std::uint64_t trace_id = 0;    ///< travels to the server
    std::uint64_t most_bytes = 0;  ///< of the response; 0: the channel's `response_bytes`
};

namespace detail {

/// The word of a call's slot, if that is still the call's.
ACCEL_HOST_DEVICE inline bool find_call(const channel_ref& channel, const call_ref& call,
                                        std::uint64_t& word) noexcept {
    if (call.slot >= channel.slots) return false;
    word = load_acquire(&channel.calls[call.slot].word);
    return generation_in(word) == call.generation;
}

/// False: it is not (any more) as the caller has seen it.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool move_call(const channel_ref& channel, const call_ref& call,
                                                      call_phase from, call_phase to) noexcept {
    std::uint64_t expected = word_of(call.generation, from);
    return hand_over(&channel.calls[call.slot].word, expected, word_of(call.generation, to));
}

ACCEL_HOST_DEVICE inline void write_header(const channel_ref& channel, const call_ref& call,
                                           std::uint64_t length) noexcept {
    wire::slot_header header;
    header.slot = call.slot;
    header.generation = call.generation;
    header.length = length;
    header.trace_id = call.trace_id;
    header.response_room = static_cast<std::uint32_t>(call.response_room);
    const std::int64_t offset = mlx5::load_whole(&channel.state->clock_offset);
    const bool told = offset != unknown_offset && call.deadline < never_ns;
    header.deadline_ns = told ? call.deadline + offset : INT64_MAX;
    store_header(header, call.request - wire::header_bytes);
}

/// One work request. Waits for room a little; `again`: there is none, for completions do not come.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const channel_ref& channel, mlx5::work_request& request,
                                                   std::int64_t until) noexcept {
    mlx5::send_queue_sight seen = look_at(channel.sends);
    for (;;) {
        const status posted = device::post(channel.sends, request, seen);
        if (posted != status::again) return posted;
        if (const status over = end_of(channel); over != status::ok) return over;
        if (clock_ns() >= until) return status::again;
        look(channel);
    }
}

/// The work requests of one request: the payload on its own, if it goes elsewhere than behind its header.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post_request(const channel_ref& channel, const call_ref& call,
                                                           std::uint64_t length) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    const std::int64_t patient_until = clock_ns() + patience_ns;
    const std::int64_t until = call.deadline < patient_until ? call.deadline : patient_until;
    const auto payload = reinterpret_cast<std::uint64_t>(call.request);
    const std::uint64_t header = payload - wire::header_bytes;
    const bool apart = length > 0 && channel.peer.payloads != 0;
    mlx5::local_range range{header, static_cast<std::uint32_t>(wire::header_bytes + length),
                            channel.requests.key};
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &range;
    if (apart) {
        range = {payload, static_cast<std::uint32_t>(length), channel.requests.key};
        request.remote_address = channel.peer.payloads + channel.peer.payloads_stride * call.slot;
        request.remote_key = channel.peer.payloads_key;
        if (const status sent = post(channel, request, until); sent != status::ok) return sent;
        range = {header, static_cast<std::uint32_t>(wire::header_bytes), channel.requests.key};
    }
    request.operation = mlx5::opcode::write_immediate;
    request.immediate = mlx5::to_be32(call.slot);
    request.remote_address = channel.peer.headers + channel.peer.headers_stride * call.slot;
    request.remote_key = channel.peer.headers_key;
    return post(channel, request, until);
}

/// Everything that a correct server keeps to. Why a call failed is text, and may need more room than the
/// response was given.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_answer(const channel_ref& channel, const call_ref& call,
                                                      const wire::slot_header& header) noexcept {
    const std::uint64_t most = header.code == status::ok ? call.response_room : channel.responses.capacity;
    return wire::is_well_formed(header, wire::message_kind::response) && header.slot == call.slot &&
           header.generation == call.generation && header.length <= most;
}

ACCEL_HOST_DEVICE inline status take_response(const channel_ref& channel, call_ref& call) noexcept {
    const std::byte* const from = header_of(channel.responses, call.slot);
    wire::slot_header header;
    if (await_header(from, call.generation, true, header) && is_answer(channel, call, header)) {
        // Only this end says `again`, of calls that go on.
        call.outcome = header.code == status::again ? status::overloaded : header.code;
        call.code = header.application_code;
        call.response = from + wire::header_bytes;
        call.response_bytes = header.length;
        (void)count_up(&channel.state->completed);
    } else {
        fail_channel(channel, status::protocol_error);
        call.outcome = status::peer_lost;
        (void)count_up(&channel.state->ended_early);
    }
    (void)move_call(channel, call, call_phase::arrived, call_phase::ended);
    return call.outcome;
}

/// Ends a call before its response, unless that is there already.
ACCEL_HOST_DEVICE inline status end_early(const channel_ref& channel, call_ref& call, status why) noexcept {
    if (!move_call(channel, call, call_phase::in_flight, call_phase::overdue)) {
        return take_response(channel, call);
    }
    call.outcome = why;
    (void)count_up(&channel.state->ended_early);
    return why;
}

/// What is known of a call now; `again`: it goes on.
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

}  // namespace detail

/// Takes a free slot, without waiting. `again`: none is free; `peer_lost`, `closed`: the session is over, and
/// no slot will be free again.
[[nodiscard]] ACCEL_HOST_DEVICE inline status begin(const channel_ref& channel, call_ref& out) noexcept {
    if (const status over = detail::end_of(channel); over != status::ok) return over;
    std::uint32_t slot = detail::take_slot(channel);
    if (slot == no_call) {
        detail::look(channel);  // a late response may set one free
        slot = detail::take_slot(channel);
        if (slot == no_call) return status::again;
    }
    call_entry& entry = channel.calls[slot];
    const std::uint32_t last = detail::generation_in(load_relaxed(&entry.word));
    call_ref made;
    made.request = detail::header_of(channel.requests, slot) + wire::header_bytes;
    made.request_room = channel.requests.capacity;
    made.slot = slot;
    made.generation = last + 1 == 0 ? 1 : last + 1;
    std::uint64_t expected = detail::word_of(last, call_phase::free);
    (void)hand_over(&entry.word, expected, detail::word_of(made.generation, call_phase::begun));
    out = made;
    return status::ok;
}

/// Sends the first `length` bytes of `request`. By one thread; what others have written of it has to be
/// ordered before (`__syncthreads`, say). On anything but `ok` nothing was sent, and the call stays begun:
/// `message_too_large`, `invalid_argument`, `invalid_state`, `again` (the send queue stayed full),
/// `peer_lost`, `closed`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status submit(const channel_ref& channel, call_ref& call,
                                                     std::uint64_t length,
                                                     const call_options& with = {}) noexcept {
    if (call.slot >= channel.slots) return status::invalid_state;
    if (length > channel.requests.capacity) return status::message_too_large;
    if (with.timeout_ns < 0) return status::invalid_argument;
    if (const status over = detail::end_of(channel); over != status::ok) return over;
    const std::int64_t timeout = with.timeout_ns > 0 ? with.timeout_ns : channel.call_timeout_ns;
    const std::int64_t now = clock_ns();
    const bool bounded = with.most_bytes != 0 && with.most_bytes < channel.responses.capacity;
    call.deadline = timeout >= never_ns - now ? never_ns : now + timeout;
    call.trace_id = with.trace_id;
    call.response_room = bounded ? with.most_bytes : channel.responses.capacity;
    // Before it leaves: the response may be here before this returns.
    if (!detail::move_call(channel, call, call_phase::begun, call_phase::in_flight)) {
        return status::invalid_state;
    }
    detail::write_header(channel, call, length);
    const status sent = detail::post_request(channel, call, length);
    if (sent == status::ok) {
        (void)count_up(&channel.state->submitted);
        return sent;
    }
    if (!detail::move_call(channel, call, call_phase::in_flight, call_phase::begun)) {
        detail::fail_channel(channel, status::protocol_error);  // an answer to what was never asked
        return status::peer_lost;
    }
    return sent;
}

/// What has become of a call, without waiting. `again`: it goes on; anything else is its outcome, as in
/// `outcome`: `ok` with the response, a failure that the server answered, `timed_out`, `peer_lost` or
/// `closed`. After that the call has to be released. A server that answers `again` is heard as `overloaded`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status poll(const channel_ref& channel, call_ref& call) noexcept {
    const status found = detail::settle(channel, call);
    if (found != status::again) return found;
    detail::look(channel);
    return detail::settle(channel, call);
}

/// Every call ends: by its own deadline at the latest, or with the session.
inline constexpr std::int64_t until_its_end = INT64_MAX;

/// As `poll`, and waits for the end of the call for at most `timeout_ns`: then `again`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status wait(const channel_ref& channel, call_ref& call,
                                                   std::int64_t timeout_ns = until_its_end) noexcept {
    for (const std::int64_t start = clock_ns();;) {
        const status found = poll(channel, call);
        if (found != status::again || clock_ns() - start >= timeout_ns) return found;
    }
}

/// Ends a submitted call early: its outcome is `cancelled`. `invalid_state`: its response is there, or it has
/// ended.
ACCEL_HOST_DEVICE inline status cancel(const channel_ref& channel, call_ref& call) noexcept {
    if (call.slot >= channel.slots) return status::invalid_state;
    if (!detail::move_call(channel, call, call_phase::in_flight, call_phase::overdue)) {
        return status::invalid_state;
    }
    call.outcome = status::cancelled;
    (void)count_up(&channel.state->ended_early);
    return status::ok;
}

/// Gives back a call that has ended, or was begun and never submitted, and its slot: at once, or when the
/// server's late response has come. `invalid_state`: it goes on, or has been released.
ACCEL_HOST_DEVICE inline status release(const channel_ref& channel, const call_ref& call) noexcept {
    std::uint64_t word = 0;
    if (!detail::find_call(channel, call, word)) return status::invalid_state;
    if (detail::phase_in(word) == call_phase::overdue) {
        (void)count_up(&channel.state->quarantined);
        if (detail::move_call(channel, call, call_phase::overdue, call_phase::quarantined)) return status::ok;
        count_down(&channel.state->quarantined);  // the response has come just now
    }
    const bool released = detail::move_call(channel, call, call_phase::ended, call_phase::free) ||
                          detail::move_call(channel, call, call_phase::begun, call_phase::free);
    if (!released) return status::invalid_state;
    detail::put_slot_back(channel, call.slot);
    return status::ok;
}

}  // namespace accel::device
