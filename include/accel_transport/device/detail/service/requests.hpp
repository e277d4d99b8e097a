// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/service/parts.hpp>

#include <cstddef>
#include <cstdint>

/// One request of a service on a GPU: it is checked when it arrives, and its answer is posted.
namespace accel::device::detail {

/// An arrival.
enum class admission : std::uint32_t {
    wrong,  ///< not what a correct client sends
    request,
    continues,  ///< a request whose parts follow, which is refused
    returned,   ///< a slot for a part, which has been dealt with
};

/// Looks at what has arrived.
ACCEL_HOST_DEVICE inline admission admit(const service_ref& service, const ready_entry& arrived,
                                         wire::slot_header& header, exchange_ref& out) noexcept {
    session_entry& session = service.sessions[arrived.session];
    const std::byte* const from = header_of(session.is.requests, arrived.slot);
    const std::uint32_t last_generation = session.generations[arrived.slot];
    // All at once, and before the header, for a GPU reads nothing ahead of an acquire.
    const std::uint64_t request_bytes = session.is.requests.capacity;
    const std::uint64_t response_bytes = session.is.responses.capacity;
    out.session_id = session.is.id;
    prepare_answer(service, session, arrived.slot, out);
    out.seen.released = arrived.released;
    out.parts = nullptr;
    if (!is_open(session)) return admission::wrong;
    if (!await_header(from, last_generation, false, header)) return admission::wrong;
    if (!is_sane(request_bytes, response_bytes, arrived.slot, header)) [[unlikely]] {
        if (is_room(header)) return file_room(service, arrived, header) ? admission::returned : admission::wrong;
        if (is_request_part(header))
            return return_part(service, arrived, header) ? admission::returned : admission::wrong;
        if (!begin_parts(service, arrived, header, out)) return admission::wrong;
    }
    out.target = {};
    if (header.extension_bytes > 0) {
        const bool known =
            wire::find_response_target(from - header.extension_bytes, header.extension_bytes, out.target) &&
            (out.target.length == 0 || header.response_room <= out.target.length);
        if (!known) return admission::wrong;
    }
    store_relaxed(&session.generations[arrived.slot], header.generation);
    out.request = from + wire::header_bytes;
    out.request_bytes = header.length;
    out.response_room = header.response_room;
    out.trace_id = header.trace_id;
    out.target_number = header.target;
    out.deadline = own_deadline(out.clock_offset, header.deadline_ns);
    out.arrival = arrived.arrival;
    out.session = arrived.session;
    out.slot = arrived.slot;
    out.generation = header.generation;
    return (header.flags & wire::header_flag::continues) == 0 ? admission::request : admission::continues;
}

/// Ends the exchange, whatever becomes of the answer.
ACCEL_HOST_DEVICE inline status answer_with(const service_ref& service, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    if (exchange.parts != nullptr) [[unlikely]]
        return end_parts(service, exchange, with);
    const status sent = post_answer(service, exchange, with);
    finish_exchange(service.sessions[exchange.session]);
    return sent;
}

/// Reads an arrival as its client meant it. False: it is a slot for a part, it is refused because it comes in parts, or
/// it is dropped, and its session with it.
ACCEL_HOST_DEVICE inline bool look_into(const service_ref& service, const ready_entry& arrived,
                                        wire::slot_header& header, exchange_ref& out) noexcept {
    session_entry& session = service.sessions[arrived.session];
    const admission found = admit(service, arrived, header, out);
    if (found == admission::request) [[likely]]
        return true;
    if (found == admission::continues) {
        (void)answer_with(service, out, {status::unsupported, 0, 0});
        return false;
    }
    if (found == admission::wrong) {
        fail_session(service, arrived.session, status::protocol_error);
        (void)count_up(&service.state->dropped);
    }
    finish_exchange(session);
    return false;
}

/// The arrival is with the service now. False: it is none of its requests, or has been refused.
ACCEL_HOST_DEVICE inline bool take_on(const service_ref& service, const ready_entry& arrived,
                                      exchange_ref& out) noexcept {
    wire::slot_header header;
    if (!look_into(service, arrived, header, out)) return false;
    if (out.deadline <= clock_ns()) {
        (void)count_up(&service.state->expired);
        (void)answer_with(service, out, {status::timed_out, 0, 0});
        return false;
    }
    (void)count_up(&service.state->requests);
    return true;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status take_request(const service_ref& service, exchange_ref& out) noexcept {
    if (!is_own_version(service.layout) || service.state == nullptr) return status::unsupported;
    ready_entry arrived;
    const status found = next_ready(service, arrived);
    if (found != status::ok) return found;
    // In registers until it is whole: each store to `out` would wait for the load before it.
    exchange_ref taken;
    if (!take_on(service, arrived, taken)) return status::again;
    out = taken;
    return status::ok;
}

[[nodiscard]] ACCEL_HOST_DEVICE inline status wait_for_request(const service_ref& service, exchange_ref& out,
                                                               std::int64_t timeout_ns) noexcept {
    for (std::int64_t start = 0;;) {
        const status found = take_request(service, out);
        if (found != status::again) return found;
        const std::int64_t now = clock_ns();
        if (start == 0) start = now;
        if (now - start >= timeout_ns) return status::timed_out;
    }
}

}  // namespace accel::device::detail
