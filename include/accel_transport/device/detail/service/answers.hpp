// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/service/intake.hpp>

#include <cstddef>
#include <cstdint>

/// How a service on a GPU answers: what an answer is made of, and the work requests that it leaves by.
namespace accel::device::detail {

/// The request is no longer with the service; its session may end.
ACCEL_HOST_DEVICE inline void finish_exchange(session_entry& session) noexcept {
    count_down(&session.open);
}

ACCEL_HOST_DEVICE inline bool is_open(const session_entry& session) noexcept {
    return load_relaxed(&session.phase) == static_cast<std::uint32_t>(session_phase::open);
}

/// Everything that a correct client keeps to. Capacities, in bytes: of requests and of responses.
ACCEL_HOST_DEVICE inline bool is_sane(std::uint64_t request_bytes, std::uint64_t response_bytes, std::uint32_t slot,
                                      const wire::slot_header& header) noexcept {
    return wire::is_well_formed(header, wire::message_kind::request) && header.slot == slot &&
           header.length <= request_bytes && header.response_room <= response_bytes;
}

/// A deadline by this end's own clock; one that never comes until that is known to differ by how much.
ACCEL_HOST_DEVICE inline std::int64_t own_deadline(std::int64_t offset, std::int64_t told) noexcept {
    if (offset == unknown_offset || told >= never_ns) return never_ns;
    return (told < 0 ? 0 : told) - offset;
}

ACCEL_HOST_DEVICE inline void prepare_answer(const service_ref& service, const session_entry& session,
                                             std::uint32_t slot, exchange_ref& out) noexcept {
    const bool direct = engine_of(service) == engine::direct;
    if (direct) out.sends = session.sends.direct;
    out.response = header_of(session.is.responses, slot) + wire::header_bytes;
    out.response_key = session.is.responses.key;
    out.peer = session.is.peer;
    out.busy = session.busy + slot;
    out.clock_offset = mlx5::load_whole(&service.state->clock_offset);
    if (direct) out.seen.reserved = load_relaxed(&session.sends.direct.state->reserved);
}

/// An answer, beside its bytes.
struct answer {
    status code = status::ok;
    std::uint32_t application_code = 0;
    std::uint64_t length = 0;
    std::uint16_t flags = 0;
};

ACCEL_HOST_DEVICE inline std::uint32_t ticks_of(std::int64_t nanoseconds) noexcept {
    const std::int64_t ticks = nanoseconds < 0 ? 0 : nanoseconds >> 6;
    return ticks > 0xffff'ffffLL ? 0xffff'ffffU : static_cast<std::uint32_t>(ticks);
}

/// A kernel may fail with any status; a client gets a failure that it knows.
ACCEL_HOST_DEVICE inline status failure_of(status reason) noexcept {
    const bool failure = reason != status::ok && static_cast<std::uint16_t>(reason) < status_count;
    return failure ? reason : status::application_error;
}

/// The fields that an answer's header repeats of its request, and where it is written.
struct header_fields {
    std::byte* response;  ///< the header lies before it
    std::uint64_t trace_id;
    std::int64_t arrival;  ///< by `clock_ns`
    std::int64_t clock_offset;
    std::uint32_t slot;
    std::uint32_t generation;
};
ACCEL_HOST_DEVICE_INLINE header_fields fields_of(const exchange_ref& exchange) noexcept {
    return {exchange.response,     exchange.trace_id, exchange.arrival,
            exchange.clock_offset, exchange.slot,     exchange.generation};
}
/// `plain`: the client looks at the header's last word.
ACCEL_HOST_DEVICE inline void write_header(const header_fields& fields, const answer& with,
                                           bool plain = false) noexcept {
    wire::slot_header header;
    header.kind = wire::message_kind::response;
    header.flags = with.flags;
    header.slot = fields.slot;
    header.generation = fields.generation;
    header.code = with.code;
    header.length = with.length;
    header.trace_id = fields.trace_id;
    header.server_ticks = ticks_of(clock_ns() - fields.arrival);
    header.application_code = with.application_code;
    header.arrival_ns = fields.clock_offset == unknown_offset ? 0 : fields.arrival + fields.clock_offset;
    if (plain) header.arrival_word = fields.generation;
    store_header(header, fields.response - wire::header_bytes);
}

/// Where the bytes of an answer lie, and under which keys of the adapter.
struct answer_bytes {
    std::uint64_t header = 0;
    std::uint64_t payload = 0;
    std::uint32_t header_key = 0;
    std::uint32_t payload_key = 0;
};

/// … where there is room for them: consecutively.
ACCEL_HOST_DEVICE inline answer_bytes bytes_in_slot(const exchange_ref& exchange) noexcept {
    const auto payload = reinterpret_cast<std::uint64_t>(exchange.response);
    return {payload - wire::header_bytes, payload, exchange.response_key, exchange.response_key};
}

/// Where the client wants a payload that comes on its own.
ACCEL_HOST_DEVICE inline void address_payload(const exchange_ref& exchange, const peer_slots_layout& peer, bool placed,
                                              mlx5::work_request& out) noexcept {
    if (placed) {
        out.remote_address = exchange.target.address;
        out.remote_key = exchange.target.key;
    } else if (peer.payloads != 0) {
        out.remote_address = peer.payloads + peer.payloads_stride * exchange.slot;
        out.remote_key = peer.payloads_key;
    } else {
        out.remote_address = peer.headers + peer.headers_stride * exchange.slot + wire::header_bytes;
        out.remote_key = peer.headers_key;
    }
}

/// The work requests of one response: the payload on its own, if it does not lie after its header, or goes elsewhere.
ACCEL_HOST_DEVICE inline status post_response(const service_ref& service, const exchange_ref& exchange,
                                              const answer& with, const answer_bytes& from) noexcept {
    const bool placed = exchange.target.length > 0 && with.code == status::ok;
    const bool behind = from.payload == from.header + wire::header_bytes;
    const bool apart = with.length > 0 && (placed || exchange.peer.payloads != 0 || !behind);
    // In its slot, where the proxy looks for it.
    const bool in_slot = reinterpret_cast<std::uint64_t>(exchange.response) == from.payload && behind;
    if (in_slot && !apart && engine_of(service) == engine::proxy) {
        const std::uint32_t header = wire::header_bytes;
        const std::uint32_t bytes = header + static_cast<std::uint32_t>(with.length);
        const proxy::send_queue_ref& to = service.sessions[exchange.session].sends.proxied;
        return post_when_there_is_room(service, [&] { return proxy::post_answer(to, exchange.slot, bytes); });
    }
    mlx5::local_range range;
    mlx5::work_request request;
    request.ranges = 1;
    request.first = &range;
    mlx5::counter_snapshot seen = exchange.seen;
    // One place that posts, for both: it is most of the code.
    for (bool payload = apart;; payload = false) {
        if (payload) {
            range = {from.payload, static_cast<std::uint32_t>(with.length), from.payload_key};
            address_payload(exchange, exchange.peer, placed, request);
        } else {
            const std::uint64_t behind_header = apart ? 0 : with.length;
            range = {from.header, static_cast<std::uint32_t>(wire::header_bytes + behind_header), from.header_key};
            request.operation = exchange.peer.plain != 0 ? mlx5::opcode::write : mlx5::opcode::write_immediate;
            request.immediate = mlx5::to_be32(exchange.slot);
            request.remote_address = exchange.peer.headers + exchange.peer.headers_stride * exchange.slot;
            request.remote_key = exchange.peer.headers_key;
        }
        const status sent = post(service, exchange.session, exchange.sends, request, seen);
        if (sent != status::ok || !payload) return sent;
    }
}

/// An answer whose header has been written leaves.
ACCEL_HOST_DEVICE inline status send_off(const service_ref& service, const exchange_ref& exchange, const answer& with,
                                         const answer_bytes& from) noexcept {
    // Before it leaves: the client's next request may be here before this returns.
    store_fenced(exchange.busy, 0);
    const status sent = post_response(service, exchange, with, from);
    if (sent != status::ok) fail_session(service, exchange.session, sent);
    return sent;
}

/// The answer of an exchange, whose slot belongs to the client again. `peer_lost`: it went nowhere.
ACCEL_HOST_DEVICE inline status post_answer(const service_ref& service, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    status sent = status::peer_lost;
    // Asked before, needed after: the header stays here if nobody is there to read it.
    const bool open = is_open(service.sessions[exchange.session]);
    write_header(fields_of(exchange), with, exchange.peer.plain != 0);
    if (open) sent = send_off(service, exchange, with, bytes_in_slot(exchange));
    (void)count_up(sent == status::ok ? &service.state->replies : &service.state->dropped);
    return sent == status::ok ? status::ok : status::peer_lost;
}

}  // namespace accel::device::detail
