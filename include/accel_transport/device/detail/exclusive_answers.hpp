// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/exclusive_intake.hpp>
#include <accel_transport/device/detail/service_answers.hpp>

#include <cstddef>
#include <cstdint>

/// How an owner of sessions answers. From the header's arrival to the doorbell there is no lock, no load from the
/// host's memory, and no atomic operation whose result anything waits for.
namespace accel::device::detail {

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

/// A work request of one WQEBB.
struct answer_request {
    mlx5::control_segment control{};
    mlx5::remote_segment remote{};
    mlx5::data_segment local{};
};
ACCEL_HOST_DEVICE inline void put_request(const session_view& queue, std::uint32_t wqebb,
                                          const answer_request& request) noexcept {
    std::byte* const at = queue.ring + std::size_t{wqebb & queue.wqebb_mask} * mlx5::wqebb_bytes;
    put_segment(at, request.control);
    put_segment(at + mlx5::ds_bytes, request.remote);
    put_segment(at + 2 * std::size_t{mlx5::ds_bytes}, request.local);
}

/// What was prepared, and what changes from answer to answer. One request in a quarter of the room asks for a
/// completion.
ACCEL_HOST_DEVICE inline answer_request request_of(const session_view& queue, const prepared_answer& prepared,
                                                   std::uint32_t wqebb, mlx5::opcode operation,
                                                   std::uint64_t bytes) noexcept {
    const bool due = ((wqebb + 1) & (queue.limit / 4 - 1)) == 0;
    answer_request out;
    out.control.opmod_idx_opcode = mlx5::opmod_idx_opcode_of(wqebb, operation);
    out.control.qpn_ds = prepared.qpn_ds;
    out.control.flags = due ? mlx5::flag_signalled : std::uint8_t{0};
    out.control.immediate = prepared.immediate;
    out.remote = prepared.remote;
    out.local = {mlx5::to_be32(static_cast<std::uint32_t>(bytes)), prepared.key, prepared.address};
    return out;
}

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
                                                       const prepared_answer& prepared, const exchange_ref& exchange,
                                                       bool placed, std::uint64_t bytes, std::uint32_t wqebb) noexcept {
    mlx5::work_request to;
    address_payload(exchange, mine.at.sessions[exchange.session].is.peer, placed, to);
    if (mine.at.by == engine::proxy) return put_payload_by_proxy(mine, exchange, to, bytes, wqebb);
    answer_request request = request_of(queue, prepared, wqebb, mlx5::opcode::write, bytes);
    request.control.immediate = mlx5::be32{};
    request.remote = {mlx5::to_be64(to.remote_address), mlx5::to_be32(to.remote_key), mlx5::be32{}};
    request.local.address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(exchange.response));
    put_request(queue, wqebb, request);
}

/// What has been posted: the number of the WQEBB behind it, and its doorbell.
struct posted_answer {
    std::uint32_t end = 0;
    std::uint64_t doorbell = 0;
};

/// Posts the request for a header and what is behind it, and rings, or hands it to the proxy.
ACCEL_HOST_DEVICE_INLINE posted_answer post_header(engine by, mlx5::queue_place place, const session_view& queue,
                                                   const prepared_answer& prepared, std::uint32_t slot,
                                                   std::uint32_t number, std::uint32_t bytes) noexcept {
    posted_answer out;
    out.end = number + 1;
    if (by == engine::proxy) [[unlikely]] {
        proxy::order_payload_before_descriptor();
        proxy::fill_answer(reinterpret_cast<proxy::send_descriptor*>(queue.ring), queue.wqebb_mask, number, slot,
                           bytes);
        return out;
    }
    const answer_request request = request_of(queue, prepared, number, mlx5::opcode::write_immediate, bytes);
    put_request(queue, number, request);
    __builtin_memcpy(&out.doorbell, &request.control, sizeof out.doorbell);
    if (place == mlx5::queue_place::gpu)
        mlx5::ring_early<mlx5::queue_place::gpu>(queue.doorbell, queue.doorbell_record, out.end, out.doorbell);
    else
        mlx5::ring_early<mlx5::queue_place::host>(queue.doorbell, queue.doorbell_record, out.end, out.doorbell);
    return out;
}

ACCEL_HOST_DEVICE inline void ring_again(const owned_sessions& mine, const session_view& queue,
                                         const posted_answer& posted) noexcept {
    if (mine.at.by == engine::proxy) return;
    if (mine.at.queues == mlx5::queue_place::gpu)
        mlx5::ring_again<mlx5::queue_place::gpu>(queue.doorbell, posted.doorbell);
    else
        mlx5::ring_again<mlx5::queue_place::host>(queue.doorbell, posted.doorbell);
}

/// An answer whose doorbell has rung, or that goes nowhere because its session has ended.
struct given_answer {
    bool open = false;
    posted_answer posted;
};

/// An answer whose payload does not go behind its header, or whose session has ended.
ACCEL_HOST_DEVICE_SELDOM inline given_answer give_in_parts(owned_sessions& mine, const exchange_ref& exchange,
                                                           const answer& with) noexcept {
    const session_view& queue = mine.sessions[exchange.session_copy];
    const prepared_answer& prepared = mine.slots[exchange.slot_copy].prepared;
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
    const prepared_answer prepared = mine.slots[exchange.slot_copy].prepared;
    const engine by = mine.at.by;
    const mlx5::queue_place place = mine.at.queues;
    const std::uint32_t slot = exchange.slot;
    const bool plain = queue.plain != 0 && exchange.target.length == 0;
    write_header(exchange, with);
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
        ring_again(mine, copy, given.posted);
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

/// The answer of an exchange, whose slot belongs to the client again. `peer_lost`: it went nowhere.
ACCEL_HOST_DEVICE_INLINE status post_answer(owned_sessions& mine, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    const given_answer given = give_answer(mine, exchange, with);
    account_for(mine, exchange, given);
    return given.open ? status::ok : status::peer_lost;
}

}  // namespace accel::device::detail
