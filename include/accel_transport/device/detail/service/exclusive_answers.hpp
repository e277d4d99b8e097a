// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/owned_sends.hpp>
#include <accel_transport/device/detail/service/answers.hpp>
#include <accel_transport/device/detail/service/exclusive_intake.hpp>

#include <cstddef>
#include <cstdint>

/// How an owner of sessions answers. From the header's arrival to the doorbell there is no lock, no load from the
/// host's memory, and no atomic operation whose result anything waits for.
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

/// The payload goes elsewhere than after its header: a request of its own before the header's.
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

/// An answer whose payload does not go after its header, or whose session has ended.
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

/// The part of an exchange that its answer needs, read at once.
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

/// Everything up to the doorbell, for which the client waits. Room was kept when its request was taken.
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
    if (queue.plain == 0 || asked.target_length != 0) [[unlikely]] {
        // A copy: what a function is called with lies in memory, and the fence would wait for it.
        const answer apart = with;
        return give_in_parts(mine, exchange, apart);
    }
    given_answer out;
    out.open = true;
    const std::uint32_t bytes = wire::header_bytes + static_cast<std::uint32_t>(with.length);
    out.posted = post_header(asked.by, asked.queues, queue, prepared, asked.fields.slot, queue.posted, bytes);
    return out;
}

/// The bookkeeping after the answer, for which no client waits. A second doorbell follows the record, and the slot is
/// looked at again.
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

/// The answer of an exchange, whose slot belongs to the client again. `peer_lost`: it went nowhere.
ACCEL_HOST_DEVICE_INLINE status post_answer(owned_sessions& mine, const exchange_ref& exchange,
                                            const answer& with) noexcept {
    const given_answer given = give_answer(mine, exchange, with);
    account_for(mine, exchange, given);
    return given.open ? status::ok : status::peer_lost;
}

}  // namespace accel::device::detail
