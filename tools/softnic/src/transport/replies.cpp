// SPDX-License-Identifier: Apache-2.0
// Responder: reads, atomics, and the queue of responses owed.
#include "transport/completions.hpp"
#include "transport/memory.hpp"
#include "transport/psn.hpp"
#include "transport/responder.hpp"
#include "transport/wire.hpp"

#include <algorithm>
#include <cstring>

namespace accel::softnic::responder {
namespace {

region_table::result check_remote(hca& nic, const queue_pair& qp, std::uint32_t rkey, std::uint64_t address,
                                  std::uint64_t size_bytes, std::uint32_t needed) {
    if ((qp.attributes.access & needed) == 0) return {access_check::denied, nullptr};
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    return regions.check(rkey, user_of(qp), address, size_bytes, needed);
}

std::uint32_t count_responses(std::uint32_t length, std::uint32_t mtu) {
    return std::max(1u, (length + mtu - 1) / mtu);
}

/// More reads and atomics at once than this side agreed to. Repetitions do not count: while their answers
/// wait here, the requester may have had the first ones, and gone on.
bool too_many_outstanding(const queue_pair& qp) {
    const auto& replies = qp.responder.replies;
    std::size_t costly = 0;
    for (std::size_t at = 0; at < replies.size(); ++at) {
        const packet_kind kind = replies[at].kind;
        if (replies[at].again) continue;
        if (kind == packet_kind::read_response || kind == packet_kind::atomic_response) ++costly;
    }
    return costly >= std::max<std::size_t>(qp.attributes.max_dest_rd_atomic, 1);
}

bool execute_atomic(hca& nic, queue_pair& qp, const packet_header& in, std::uint64_t& previous) {
    memory::flush_posted(nic, qp);
    const auto found = check_remote(nic, qp, in.rkey, in.address, in.length, access::remote_atomic);
    if (found.status != access_check::ok) return false;
    const atomic_operation what{in.has(packet_flag::compare_swap),
                                in.length,
                                in.swap_or_add,
                                in.compare,
                                in.swap_mask,
                                in.compare_mask,
                                in.boundary};
    return what.execute(*found.region->engine, found.region->engine_address(in.address), previous);
}

void remember(responder_state& responder, std::uint32_t psn, std::uint64_t value) {
    responder.atomics[responder.next_atomic] = {psn, value};
    responder.next_atomic = (responder.next_atomic + 1) % responder_state::atomic_depth;
}

/// Fills one packet of a read. False when the memory has gone; the requester learns it from a NAK.
bool fill_read_response(hca& nic, queue_pair& qp, const reply& owed, const wire::outgoing& way) {
    packet& out = *way.contents;
    out.header.kind = packet_kind::read_response;
    out.header.payload_bytes = static_cast<std::uint16_t>(std::min(owed.length, qp.mtu_bytes()));
    if (owed.first) out.header.flags |= packet_flag::first;
    if (owed.length <= qp.mtu_bytes()) out.header.flags |= packet_flag::last;
    if (out.header.payload_bytes == 0) return true;
    const auto found = check_remote(nic, qp, owed.rkey, owed.address, out.header.payload_bytes, access::remote_read);
    if (found.status != access_check::ok) return false;
    if (way.may_refer && out.header.payload_bytes >= way.worth_referring_bytes &&
        way.refer(memory::locate(*found.region, owed.address, out.header.payload_bytes)))
        return true;
    return memory::read(*found.region, owed.address, std::span(out.payload).first(out.header.payload_bytes),
                        owed.message, owed.length - out.header.payload_bytes);
}

/// Eight bytes arrive in the host's order, four in the network's: as adapters do whose 8-byte answers are
/// switched to the host's order, which is what the driver does.
void fill_atomic_response(const reply& owed, packet& out) {
    out.header.payload_bytes = static_cast<std::uint16_t>(owed.length);
    const std::uint32_t narrow = htobe32(static_cast<std::uint32_t>(owed.value));
    const bool wide = owed.length == sizeof owed.value;
    std::memcpy(out.payload.data(), wide ? static_cast<const void*>(&owed.value) : &narrow, owed.length);
}

void fill_small(hca& nic, const queue_pair& qp, const reply& owed, packet& out) {
    out.header.kind = owed.kind;
    if (owed.kind == packet_kind::negative_acknowledge) {
        out.header.nak = owed.nak;
        out.header.rnr_timer = qp.attributes.min_rnr_timer;
        ++nic.count.naks_sent;
    } else if (owed.kind == packet_kind::atomic_response) {
        fill_atomic_response(owed, out);
    }
}

/// Steps a read on to its next packet. True when it was the last.
bool advance_read(const queue_pair& qp, reply& owed) {
    const std::uint32_t sent = std::min(owed.length, qp.mtu_bytes());
    owed.address += sent;
    owed.length -= sent;
    owed.first = false;
    owed.psn = psn::add(owed.psn, 1);
    return owed.length == 0;
}

}  // namespace

void on_read(hca& nic, queue_pair& qp, const packet_header& in, bool again) {
    const auto found = check_remote(nic, qp, in.rkey, in.address, in.length, access::remote_read);
    const bool allowed =
        in.length == 0 ? (qp.attributes.access & access::remote_read) != 0 : found.status == access_check::ok;
    if (!allowed) return reject(nic, qp, in.psn, nak_code::remote_access);
    if (too_many_outstanding(qp)) {
        if (!again) reject(nic, qp, in.psn, nak_code::invalid_request);
        return;
    }
    memory::flush_posted(nic, qp);
    reply owed;
    owed.kind = packet_kind::read_response;
    owed.again = again;
    owed.psn = in.psn;
    owed.address = in.address;
    owed.rkey = in.rkey;
    owed.length = in.length;
    owed.message = ++nic.messages;
    owe(qp, owed);
    if (!again) qp.responder.expected_psn = psn::add(in.psn, count_responses(in.length, qp.mtu_bytes()));
}

void on_atomic(hca& nic, queue_pair& qp, const packet_header& in, bool again) {
    auto& responder = qp.responder;
    if ((in.length != 4 && in.length != 8) || in.address % in.length != 0) {
        if (!again) reject(nic, qp, in.psn, nak_code::invalid_request);
        return;
    }
    reply owed;
    owed.length = in.length;
    owed.kind = packet_kind::atomic_response;
    owed.again = again;
    owed.psn = in.psn;
    if (again) {
        for (const auto& done : responder.atomics) {
            if (done.psn != in.psn) continue;
            owed.value = done.value;
            owe(qp, owed);
        }
        return;
    }
    if (too_many_outstanding(qp)) return reject(nic, qp, in.psn, nak_code::invalid_request);
    if (!execute_atomic(nic, qp, in, owed.value)) return reject(nic, qp, in.psn, nak_code::remote_access);
    remember(responder, in.psn, owed.value);
    responder.expected_psn = psn::add(in.psn, 1);
    owe(qp, owed);
}

void owe(queue_pair& qp, const reply& what) {
    auto& replies = qp.responder.replies;
    if (replies.full()) return;
    replies.push_back(what);
    replies.back().ready_ns = qp.responder.arrived_ns;
}

void owe_acknowledgement(queue_pair& qp, std::uint32_t psn) {
    auto& replies = qp.responder.replies;
    if (!replies.empty() && replies.back().kind == packet_kind::acknowledge) {
        if (psn::difference(psn, replies.back().psn) > 0) replies.back().psn = psn;
        replies.back().ready_ns = qp.responder.arrived_ns;
        return;
    }
    reply owed;
    owed.psn = psn;
    owe(qp, owed);
}

void refuse(hca& nic, queue_pair& qp, std::uint32_t psn, nak_code code) {
    reply owed;
    owed.kind = packet_kind::negative_acknowledge;
    owed.psn = psn;
    owed.nak = code;
    owe(qp, owed);
    nic.schedule(qp);
}

bool advance(hca& nic, queue_pair& qp) {
    auto& replies = qp.responder.replies;
    if (replies.empty()) return false;
    reply& owed = replies.front();
    const bool carries_data = owed.kind == packet_kind::read_response || owed.kind == packet_kind::atomic_response;
    // An acknowledgement that overtook a response would say that it was lost.
    const bool in_turn = carries_data || qp.responder.data_until > nic.wire_now;
    const auto out = wire::begin(nic, qp, qp.attributes.remote, qp.attributes.remote_qpn,
                                 in_turn ? wire::urgency::in_turn : wire::urgency::express);
    if (out.contents == nullptr) return false;
    out.contents->header.psn = owed.psn;
    out.contents->header.ready_ns = owed.ready_ns;
    if (owed.kind != packet_kind::read_response) {
        fill_small(nic, qp, owed, *out.contents);
        replies.pop_front();
    } else if (fill_read_response(nic, qp, owed, out)) {
        if (advance_read(qp, owed)) replies.pop_front();
    } else {
        const std::uint32_t psn = owed.psn;
        replies.clear();
        reject(nic, qp, psn, nak_code::remote_access);
        return true;
    }
    const std::uint64_t arrives_ns = wire::finish(nic, qp, out);
    if (carries_data) qp.responder.data_until = arrives_ns;
    return true;
}

}  // namespace accel::softnic::responder
