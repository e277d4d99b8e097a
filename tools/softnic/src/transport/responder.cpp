// SPDX-License-Identifier: Apache-2.0
// Responder: requests that carry data.
#include "transport/responder.hpp"

#include "model/window.hpp"
#include "transport/completions.hpp"
#include "transport/memory.hpp"
#include "transport/psn.hpp"

#include <utility>

#include <endian.h>
#include <infiniband/verbs.h>

namespace accel::softnic::responder {
namespace {

region_table& regions_of(hca& nic, const queue_pair& qp) {
    return nic.devices[static_cast<std::size_t>(qp.device)].regions;
}

/// Takes a receive WQE for the message. False after it has refused.
bool take_receive(hca& nic, queue_pair& qp, std::uint32_t psn) {
    auto& responder = qp.responder;
    switch (qp.take_receive(responder.receive)) {
        case take_status::taken:
            responder.holds_receive = true;
            return true;
        case take_status::empty:
            refuse(nic, qp, psn, nak_code::receiver_not_ready);
            return false;
        default:
            refuse(nic, qp, psn, nak_code::remote_operation);
            completions::fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
            return false;
    }
}

/// First, middle and last packets must come in that order, and all but the last be full.
bool fits_message(const queue_pair& qp, const packet_header& in) {
    const auto& responder = qp.responder;
    const bool first = in.has(packet_flag::first);
    if (first == responder.in_message) return false;
    if (!first && responder.message != in.kind) return false;
    return in.has(packet_flag::last) ? in.payload_bytes <= qp.mtu_bytes() : in.payload_bytes == qp.mtu_bytes();
}

bool start_write(hca& nic, queue_pair& qp, const packet_header& in) {
    auto& responder = qp.responder;
    responder.write_address = in.address;
    responder.write_key = in.rkey;
    responder.write_left = in.length;
    if (in.length == 0) return true;
    const auto found = regions_of(nic, qp).check(in.rkey, user_of(qp), in.address, in.length, access::remote_write);
    if ((qp.attributes.access & access::remote_write) != 0 && found.status == access_check::ok) return true;
    reject(nic, qp, in.psn, nak_code::remote_access);
    return false;
}

bool place_write(hca& nic, queue_pair& qp, const arrival& in) {
    auto& responder = qp.responder;
    const std::uint32_t size = in.header.payload_bytes;
    const bool right_size =
        in.header.has(packet_flag::last) ? size == responder.write_left : size < responder.write_left;
    if (!right_size) {
        reject(nic, qp, in.header.psn, nak_code::invalid_request);
        return false;
    }
    if (size == 0) return true;
    const auto found = regions_of(nic, qp).check(responder.write_key, user_of(qp), responder.write_address, size,
                                                 access::remote_write);
    if (found.status != access_check::ok || !memory::place(nic, qp, *found.region, responder.write_address, in.data)) {
        reject(nic, qp, in.header.psn, nak_code::remote_access);
        return false;
    }
    responder.write_address += size;
    responder.write_left -= size;
    return true;
}

bool take_write(hca& nic, queue_pair& qp, const arrival& in) {
    const packet_header& header = in.header;
    if (header.has(packet_flag::first) && !start_write(nic, qp, header)) return false;
    const bool consumes = header.has(packet_flag::last) && header.has(packet_flag::immediate);
    if (consumes && !take_receive(nic, qp, header.psn)) return false;
    return place_write(nic, qp, in);
}

void fail_placing(hca& nic, queue_pair& qp, std::uint32_t psn, vendor_syndrome problem) {
    const bool too_long = problem == vendor_syndrome::local_length;
    refuse(nic, qp, psn, too_long ? nak_code::invalid_request : nak_code::remote_operation);
    completions::fail_receive(nic, qp, {too_long ? syndrome::local_length : syndrome::local_protection, problem});
}

bool take_send(hca& nic, queue_pair& qp, const arrival& in) {
    auto& responder = qp.responder;
    const packet_header& header = in.header;
    if (header.has(packet_flag::first) && !take_receive(nic, qp, header.psn)) return false;
    const auto problem = memory::scatter(nic, qp, responder.receive.segments, responder.message_bytes, in.data);
    if (problem == vendor_syndrome::none) return true;
    fail_placing(nic, qp, header.psn, problem);
    return false;
}

bool end_remote_use(region_table& regions, const queue_pair& qp, memory_region& region) {
    if (region.is_window()) return window::invalidate(regions, user_of(qp), region) == window::outcome::done;
    return !std::exchange(region.invalidated, true);
}

/// SEND with invalidate: the key must be one this queue pair could use.
bool invalidate(hca& nic, queue_pair& qp, const packet_header& in) {
    region_table& regions = regions_of(nic, qp);
    memory_region* region = regions.find(be32toh(in.immediate));
    if (region != nullptr && region->pd == qp.options.pd && end_remote_use(regions, qp, *region)) return true;
    fail_placing(nic, qp, in.psn, vendor_syndrome::local_key);
    return false;
}

/// All of the message has been placed. False after failing, if some of it did not arrive.
bool settle_message(hca& nic, queue_pair& qp, std::uint32_t psn) {
    if (memory::settle(nic)) return true;
    if (qp.responder.holds_receive) {
        fail_placing(nic, qp, psn, vendor_syndrome::memory_fault);
    } else {
        refuse(nic, qp, psn, nak_code::remote_operation);
        completions::fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
    }
    return false;
}

void end_message(hca& nic, queue_pair& qp, const packet_header& in) {
    auto& responder = qp.responder;
    responder.in_message = false;
    if (!responder.holds_receive) return;
    responder.holds_receive = false;
    completions::complete_receive(nic, qp, responder.receive, in, responder.message_bytes);
}

void on_message_packet(hca& nic, queue_pair& qp, const arrival& in) {
    auto& responder = qp.responder;
    const packet_header& header = in.header;
    if (!fits_message(qp, header)) return reject(nic, qp, header.psn, nak_code::invalid_request);
    if (header.has(packet_flag::first)) responder.message_bytes = 0;
    const bool taken = header.kind == packet_kind::write ? take_write(nic, qp, in) : take_send(nic, qp, in);
    if (!taken || (header.has(packet_flag::last) && !settle_message(nic, qp, header.psn))) return;
    if (header.has(packet_flag::invalidate) && !invalidate(nic, qp, header)) return;
    responder.in_message = true;
    responder.message = header.kind;
    responder.message_bytes += header.payload_bytes;
    responder.expected_psn = psn::add(header.psn, 1);
    if (header.has(packet_flag::last)) end_message(nic, qp, header);
    if (header.has(packet_flag::ack_request)) owe_acknowledgement(qp, header.psn);
}

/// Something was lost: say so once, then wait for it in silence.
void on_gap(hca& nic, queue_pair& qp) {
    if (qp.responder.nak_sent) return;
    qp.responder.nak_sent = true;
    refuse(nic, qp, qp.responder.expected_psn, nak_code::sequence);
}

/// Already done. Only what has a result is done again.
void on_duplicate(hca& nic, queue_pair& qp, const packet_header& in) {
    if (in.kind == packet_kind::read_request) return on_read(nic, qp, in, true);
    if (in.kind == packet_kind::atomic_request) return on_atomic(nic, qp, in, true);
    owe_acknowledgement(qp, psn::add(qp.responder.expected_psn, psn_mask));
}

bool injected_nak(hca& nic, queue_pair& qp, const packet_header& in) {
    const fault_rule* rule = nic.fault(qp, in.kind, fault_action::nak);
    if (rule == nullptr) return false;
    if (rule->nak == nak_code::sequence || rule->nak == nak_code::receiver_not_ready)
        refuse(nic, qp, in.psn, rule->nak);
    else
        reject(nic, qp, in.psn, rule->nak);
    return true;
}

}  // namespace

void on_request(hca& nic, queue_pair& qp, const arrival& in) {
    if (!qp.receives_packets() || qp.is_datagram()) return;
    auto& responder = qp.responder;
    const packet_header& header = in.header;
    if (header.from_qpn != qp.attributes.remote_qpn || !(header.from == qp.attributes.remote)) return;
    nic.schedule(qp);
    responder.arrived_ns = nic.arrived_ns;
    if (nic.placed == nullptr) responder.ahead.begun = false;  // what comes is as if nothing had been written
    const std::int32_t ahead = psn::difference(header.psn, responder.expected_psn);
    if (ahead > 0) return on_gap(nic, qp);
    if (ahead < 0) return on_duplicate(nic, qp, header);
    responder.nak_sent = false;
    if (injected_nak(nic, qp, header)) return;
    switch (header.kind) {
        case packet_kind::read_request:
            return on_read(nic, qp, header, false);
        case packet_kind::atomic_request:
            return on_atomic(nic, qp, header, false);
        default:
            return on_message_packet(nic, qp, in);
    }
}

void reject(hca& nic, queue_pair& qp, std::uint32_t psn, nak_code code) {
    refuse(nic, qp, psn, code);
    if (qp.responder.holds_receive) {
        completions::fail_receive(nic, qp, {syndrome::local_access, vendor_syndrome::remote_access});
        return;
    }
    const bool rights = code == nak_code::remote_access;
    completions::fail_queue_pair(nic, qp, rights ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

}  // namespace accel::softnic::responder
