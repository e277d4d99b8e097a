// SPDX-License-Identifier: Apache-2.0
#include "transport/datagram.hpp"

#include "transport/completions.hpp"
#include "transport/memory.hpp"
#include "transport/requester.hpp"
#include "transport/wire.hpp"

#include <array>

#include <endian.h>
#include <infiniband/verbs.h>

namespace accel::softnic::datagram {
namespace {

constexpr std::size_t grh_bytes = 40;  ///< in front of every UD receive, used or not

port& port_of(hca& nic, const queue_pair& qp) {
    return *nic.devices[static_cast<std::size_t>(qp.device)].find_port(qp.attributes.port);
}

/// The highest bit of a WQE's Q_Key means "use the queue pair's own".
std::uint32_t qkey_for(const queue_pair& qp, std::uint32_t requested) {
    return (requested & 0x80000000u) != 0 ? qp.attributes.qkey : requested;
}

void fill(hca& nic, queue_pair& qp, const send_request& request, packet_header& header) {
    const datagram_address& to = request.destination;
    const port& mine = port_of(nic, qp);
    header.kind = packet_kind::datagram;
    header.flags = packet_flag::first | packet_flag::last;
    if (request.has_immediate) header.flags |= packet_flag::immediate;
    if (request.solicited) header.flags |= packet_flag::solicited;
    header.immediate = request.immediate;
    header.psn = qp.requester.at(qp.requester.oldest).first_psn;
    header.qkey = qkey_for(qp, to.qkey);
    header.source_lid = mine.lid;
    header.service_level = to.service_level;
    header.payload_bytes = static_cast<std::uint16_t>(request.length);
    if (!to.has_grh) return;
    header.flags |= packet_flag::has_grh;
    header.source_gid = mine.gids[to.gid_index < mine.gids.size() ? to.gid_index : 0].bytes;
    header.destination_gid = to.gid;
    header.hop_limit = to.hop_limit;
    header.traffic_class = to.traffic_class;
    header.flow_label = to.flow_label;
}

/// Where nobody lives; a datagram there is simply lost.
constexpr port_address nobody{0, 1};

failure send(hca& nic, queue_pair& qp, const send_request& request, bool& blocked) {
    if (request.length > qp.mtu_bytes()) return {syndrome::local_length, vendor_syndrome::local_length};
    const auto to = route(nic, qp, request.destination);
    const auto out = wire::begin(nic, qp, to.value_or(nobody), to ? request.destination.qpn : 0);
    blocked = out.contents == nullptr;
    if (blocked) return {};
    fill(nic, qp, request, out.contents->header);
    const auto payload = std::span(out.contents->payload).first(request.length);
    const auto problem = memory::gather(nic, qp, request.segments, request.inlined, memory::alone, 0, payload);
    if (problem != vendor_syndrome::none) return {syndrome::local_protection, problem};
    out.contents->header.ready_ns = qp.requester.rang_ns;
    wire::finish(nic, qp, out);
    return {};
}

std::array<std::byte, grh_bytes> make_grh(const packet_header& in) {
    struct {
        std::uint32_t version_class_flow;
        std::uint16_t payload_bytes;
        std::uint8_t next_header;
        std::uint8_t hop_limit;
        std::array<std::uint8_t, 16> source;
        std::array<std::uint8_t, 16> destination;
    } grh{};
    static_assert(sizeof grh == grh_bytes);
    grh.version_class_flow = htobe32(6u << 28 | std::uint32_t{in.traffic_class} << 20 | (in.flow_label & 0xfffff));
    grh.payload_bytes = htobe16(static_cast<std::uint16_t>(in.payload_bytes + 24));  // with BTH, DETH and ICRC
    grh.next_header = 0x1b;
    grh.hop_limit = in.hop_limit;
    grh.source = in.source_gid;
    grh.destination = in.destination_gid;
    return std::bit_cast<std::array<std::byte, grh_bytes>>(grh);
}

vendor_syndrome deliver(hca& nic, queue_pair& qp, const receive_request& receive, const arrival& in) {
    if (in.header.has(packet_flag::has_grh)) {
        const auto grh = make_grh(in.header);
        const auto problem = memory::scatter(nic, qp, receive.segments, 0, grh);
        if (problem != vendor_syndrome::none) return problem;
    }
    return memory::scatter(nic, qp, receive.segments, grh_bytes, in.data);
}

}  // namespace

std::optional<port_address> route(hca& nic, const queue_pair& qp, const datagram_address& to) {
    return port_of(nic, qp).link == link_layer::ethernet || to.dlid == 0 ? nic.find_gid(to.gid) : nic.find_lid(to.dlid);
}

bool advance(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (!qp.sends_packets()) return false;
    if (requester.oldest == requester.newest && !requester::fetch(nic, qp)) return false;
    if (qp.state == qp_state::error) return true;
    flight& next = requester.at(requester.oldest);
    bool blocked = false;
    if (!next.failed && next.request.kind != operation::nop) next.failed = send(nic, qp, next.request, blocked);
    if (blocked) return false;
    if (next.failed) {
        completions::fail_send(nic, qp, next.failed);
        return true;
    }
    ++requester.oldest;
    requester.sending = requester.oldest;
    completions::complete_send(nic, qp, next.request);
    if (qp.draining) requester::check_drained(nic, qp);
    return true;
}

void on_packet(hca& nic, queue_pair& qp, const arrival& in) {
    if (!qp.receives_packets() || !qp.is_datagram() || in.header.qkey != qp.attributes.qkey) return;
    auto& responder = qp.responder;
    const take_status taken = qp.take_receive(responder.receive);
    if (taken == take_status::empty) return;
    if (taken != take_status::taken) return completions::fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
    vendor_syndrome problem = deliver(nic, qp, responder.receive, in);
    if (!memory::settle(nic)) problem = vendor_syndrome::memory_fault;
    if (problem != vendor_syndrome::none) {
        const bool too_long = problem == vendor_syndrome::local_length;
        completions::fail_receive(nic, qp, {too_long ? syndrome::local_length : syndrome::local_protection, problem});
        return;
    }
    completions::complete_receive(nic, qp, responder.receive, in.header,
                                  in.header.payload_bytes + static_cast<std::uint32_t>(grh_bytes));
}

}  // namespace accel::softnic::datagram
