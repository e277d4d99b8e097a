// SPDX-License-Identifier: Apache-2.0
#include "transport/completions.hpp"

#include "transport/memory.hpp"
#include "wqe/bytes.hpp"

#include <algorithm>
#include <array>

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic::completions {
namespace {

constexpr failure flushed{syndrome::flushed, vendor_syndrome::flushed};

void put(hca& nic, queue_pair& qp, completion_queue& cq, const completion& what, std::uint8_t kind) {
    memory::flush_posted(nic, qp);  // data before its completion
    if (nic.fault(qp, packet_kind::send, fault_action::cq_overrun) != nullptr) cq.fail();
    const auto outcome = cq.put(what, kind, nic.now);
    ++nic.count.cqes;
    if (nic.log.on()) {
        nic.say(qp, "cqe", "cq {} kind {} wqe {} bytes {} syndrome {:#x}/{:#x}{}", cq.number(), kind, what.wqe_counter,
                what.byte_count, static_cast<unsigned>(what.error), static_cast<unsigned>(what.vendor),
                outcome == completion_queue::outcome::written ? "" : " LOST: the CQ is in error");
    }
    const bool lost = outcome != completion_queue::outcome::written;
    if (lost && qp.state != qp_state::error) fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
}

completion base_of(const queue_pair& qp, std::uint16_t index) {
    completion what;
    what.qpn = qp.number;
    what.user_index = qp.options.user_index;
    what.wqe_counter = index;
    return what;
}

void put_send_error(hca& nic, queue_pair& qp, std::uint16_t index, std::uint8_t opcode, failure why) {
    completion what = base_of(qp, index);
    what.opcode = opcode;
    what.error = why.error;
    what.vendor = why.vendor;
    put(nic, qp, *qp.options.send_cq, what, MLX5_CQE_REQ_ERR);
}

void put_receive_error(hca& nic, queue_pair& qp, std::uint16_t index, failure why) {
    completion what = base_of(qp, index);
    what.error = why.error;
    what.vendor = why.vendor;
    put(nic, qp, *qp.options.receive_cq, what, MLX5_CQE_RESP_ERR);
}

std::uint8_t receive_kind(const packet_header& from) {
    if (from.kind == packet_kind::write) return MLX5_CQE_RESP_WR_IMM;
    if (from.has(packet_flag::immediate)) return MLX5_CQE_RESP_SEND_IMM;
    return from.has(packet_flag::invalidate) ? MLX5_CQE_RESP_SEND_INV : MLX5_CQE_RESP_SEND;
}

void flush_flights(hca& nic, queue_pair& qp, std::uint32_t from) {
    auto& requester = qp.requester;
    for (std::uint32_t at = from; at != requester.newest; ++at) {
        const send_request& request = requester.at(at).request;
        put_send_error(nic, qp, request.index, request.opcode, flushed);
    }
    requester.oldest = requester.sending = requester.newest;
    requester.packet = 0;
    requester.retry_at = 0;
    requester.hold_until = 0;
}

/// WQEs that were posted but never fetched. Their size is needed to find the next one.
void flush_unfetched(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (qp.options.send_wqebbs == 0) return;
    requester.seen.clear();
    std::uint32_t left = std::min<std::uint32_t>(static_cast<std::uint16_t>(requester.produced - requester.consumed),
                                                 qp.options.send_wqebbs);
    while (left > 0) {
        std::array<std::byte, 16> control{};
        const std::uint32_t slot = requester.consumed & (qp.options.send_wqebbs - 1);
        if (!qp.options.send_buffer.read(std::uint64_t{slot} * wqebb_bytes, control.data(), control.size())) break;
        const std::size_t size = std::max<std::size_t>(send_wqe_bytes(control), 1);
        const auto wqebbs = static_cast<std::uint32_t>((size + wqebb_bytes - 1) / wqebb_bytes);
        const auto opcode = static_cast<std::uint8_t>(be32toh(load_as<mlx5_wqe_ctrl_seg>(control).opmod_idx_opcode));
        put_send_error(nic, qp, requester.consumed, opcode, flushed);
        requester.consumed = static_cast<std::uint16_t>(requester.consumed + wqebbs);
        left -= std::min(left, wqebbs);
    }
    requester.consumed = requester.produced;
}

void flush_receives(hca& nic, queue_pair& qp) {
    auto& responder = qp.responder;
    if (responder.holds_receive) {
        responder.holds_receive = false;
        put_receive_error(nic, qp, responder.receive.index, flushed);
    }
    if (qp.options.shared_receives) {
        if (!qp.last_wqe_told) raise_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
        qp.last_wqe_told = true;
        return;
    }
    while (qp.receives.take(responder.receive) == take_status::taken)
        put_receive_error(nic, qp, responder.receive.index, flushed);
}

void stop(hca& nic, queue_pair& qp, std::uint32_t first_to_flush) {
    if (qp.state != qp_state::error) nic.say(qp, "state", "{} -> ERR", to_string(qp.state));
    qp.state = qp_state::error;
    qp.responder.in_message = false;
    memory::drain(nic, qp);
    flush_flights(nic, qp, first_to_flush);
    flush(nic, qp);
    nic.schedule(qp);
}

}  // namespace

void complete_send(hca& nic, queue_pair& qp, const send_request& request) {
    if (!request.signalled && !qp.options.signal_all) return;
    completion what = base_of(qp, request.index);
    what.opcode = request.opcode;
    what.byte_count = request.length;
    put(nic, qp, *qp.options.send_cq, what, MLX5_CQE_REQ);
}

void complete_receive(hca& nic, queue_pair& qp, const receive_request& receive, const packet_header& from,
                      std::uint32_t byte_count) {
    completion what = base_of(qp, receive.index);
    what.byte_count = byte_count;
    what.immediate = from.immediate;
    what.source_qpn = from.from_qpn;
    what.source_lid = from.source_lid;
    what.service_level = from.service_level;
    what.has_grh = from.has(packet_flag::has_grh);
    what.solicited = from.has(packet_flag::solicited);
    put(nic, qp, *qp.options.receive_cq, what, receive_kind(from));
}

void fail_send(hca& nic, queue_pair& qp, failure why) {
    auto& requester = qp.requester;
    const send_request& request = requester.at(requester.oldest).request;
    qp.state = qp_state::error;  // before the CQE: an overrun must not start this again
    put_send_error(nic, qp, request.index, request.opcode, why);
    stop(nic, qp, requester.oldest + 1);
}

void fail_receive(hca& nic, queue_pair& qp, failure why) {
    qp.state = qp_state::error;
    qp.responder.holds_receive = false;
    put_receive_error(nic, qp, qp.responder.receive.index, why);
    stop(nic, qp, qp.requester.oldest);
}

void fail_queue_pair(hca& nic, queue_pair& qp, std::uint32_t event) {
    raise_event(qp, event);
    enter_error(nic, qp);
}

void enter_error(hca& nic, queue_pair& qp) {
    stop(nic, qp, qp.requester.oldest);
}

void flush(hca& nic, queue_pair& qp) {
    flush_unfetched(nic, qp);
    flush_receives(nic, qp);
}

void raise_event(queue_pair& qp, std::uint32_t event) {
    tell(qp.options.subscribers, {event_of_queue_pair(event), qp.number});
    if (qp.options.asynchronous && qp.options.asynchronous->send(qp.options.user_handle, event)) ++qp.events;
}

}  // namespace accel::softnic::completions
