// SPDX-License-Identifier: Apache-2.0
// Requester: from a decoded WQE to packets.
#include "transport/requester.hpp"

#include "model/window.hpp"
#include "transport/completions.hpp"
#include "transport/dynamic.hpp"
#include "transport/memory.hpp"
#include "transport/psn.hpp"
#include "transport/wire.hpp"

#include <algorithm>

#include <infiniband/verbs.h>

namespace accel::softnic::requester {
namespace {

constexpr std::int32_t window_packets = 64;
/// With a modelled link, whose rate times delay must fit in.
constexpr std::int32_t link_window_packets = 1 << 14;
constexpr std::uint32_t acknowledge_every = 16;

enum class step : std::uint8_t { sent, blocked, failed };

/// Reads and atomics that were sent and not yet answered.
unsigned responses_outstanding(queue_pair& qp) {
    auto& requester = qp.requester;
    unsigned outstanding = 0;
    for (std::uint32_t at = requester.oldest; at != requester.sending; ++at)
        if (!requester.at(at).answered()) ++outstanding;
    return outstanding;
}

/// A fenced request waits for the answers to those before it, also when it has no packet.
bool fence_holds(queue_pair& qp, const flight& next) {
    return next.request.fenced && responses_outstanding(qp) != 0;
}

bool must_wait(const hca& nic, queue_pair& qp, const flight& next) {
    auto& requester = qp.requester;
    const std::int32_t window = nic.link.on() ? link_window_packets : window_packets;
    if (psn::difference(psn::add(next.first_psn, requester.packet), requester.unacknowledged) >= window) return true;
    if (requester.packet != 0 || (!next.request.fenced && !next.request.needs_response())) return false;
    const unsigned outstanding = responses_outstanding(qp);
    if (next.request.fenced && outstanding != 0) return true;
    return next.request.needs_response() && outstanding >= qp.attributes.max_rd_atomic;
}

/// A NOP has no packet: it completes when everything before it has.
bool pass_nop(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (requester.sending == requester.oldest) {
        completions::complete_send(nic, qp, requester.at(requester.oldest).request);
        ++requester.oldest;
    }
    ++requester.sending;
    return true;
}

/// Nothing before a bind is under way when a key changes, and nothing behind it has begun.
bool pass_bind(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (requester.sending != requester.oldest) return false;
    flight& next = requester.at(requester.sending);
    memory::flush_posted(nic, qp);
    auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    if (window::change(regions, user_of(qp), next.request.window) == window::outcome::done) return pass_nop(nic, qp);
    next.failed = {syndrome::window_bind, vendor_syndrome::window_refused};
    return true;
}

void fill_read(const queue_pair& qp, const flight& from, std::uint32_t packet, packet_header& header) {
    const std::uint64_t done = std::uint64_t{packet} * qp.mtu_bytes();
    header.kind = packet_kind::read_request;
    header.flags = packet_flag::first | packet_flag::last | packet_flag::ack_request;
    header.address = from.request.remote_address + done;
    header.length = from.request.length - static_cast<std::uint32_t>(done);
    header.rkey = from.request.rkey;
}

void fill_atomic(const flight& from, packet_header& header) {
    header.kind = packet_kind::atomic_request;
    header.flags = packet_flag::first | packet_flag::last | packet_flag::ack_request;
    const atomic_operation& what = from.request.atomic;
    if (what.compare_swap) header.flags |= packet_flag::compare_swap;
    header.address = from.request.remote_address;
    header.length = what.bytes;
    header.rkey = from.request.rkey;
    header.swap_or_add = what.swap_or_add;
    header.compare = what.compare;
    header.swap_mask = what.swap_mask;
    header.compare_mask = what.compare_mask;
    header.boundary = what.boundary;
}

std::uint8_t message_flags(const flight& from, std::uint32_t packet) {
    std::uint8_t flags = packet == 0 ? packet_flag::first : std::uint8_t{0};
    if (packet % acknowledge_every == acknowledge_every - 1) flags |= packet_flag::ack_request;
    if (packet + 1 < from.packets) return flags;
    flags |= packet_flag::last | packet_flag::ack_request;
    if (from.request.has_immediate) flags |= packet_flag::immediate;
    if (from.request.invalidates) flags |= packet_flag::invalidate;
    if (from.request.solicited) flags |= packet_flag::solicited;
    return flags;
}

vendor_syndrome fill_message(hca& nic, const queue_pair& qp, const flight& from, std::uint32_t packet,
                             const wire::outgoing& out) {
    packet_header& header = out.contents->header;
    const std::uint32_t mtu = qp.mtu_bytes();
    const std::uint32_t done = packet * mtu;
    header.kind = from.request.kind == operation::write ? packet_kind::write : packet_kind::send;
    header.flags = message_flags(from, packet);
    header.payload_bytes = static_cast<std::uint16_t>(std::min(mtu, from.request.length - done));
    header.address = from.request.remote_address;
    header.length = from.request.length;
    header.rkey = from.request.rkey;
    header.immediate = from.request.immediate;
    if (out.may_refer && header.payload_bytes >= out.worth_referring_bytes &&
        out.refer(memory::locate(nic, qp, from.request.segments, done, header.payload_bytes)))
        return vendor_syndrome::none;
    return memory::gather(nic, qp, from.request.segments, from.request.inlined, from.message, done,
                          std::span(out.contents->payload).first(header.payload_bytes));
}

/// Modelled link: since when the message could leave. Not when this device came to it, unless something held it back:
/// what the emulation is slow at does not change when the link is free.
std::uint64_t ready_time(const hca& nic, requester_state& requester) {
    if (requester.packet == 0) requester.ready_ns = requester.rang_ns;
    if (requester.held) requester.ready_ns = nic.wire_now;
    requester.held = false;
    return requester.ready_ns;
}

step send_packet(hca& nic, queue_pair& qp, flight& from) {
    auto& requester = qp.requester;
    const auto out = wire::begin(nic, qp, qp.attributes.remote, qp.attributes.remote_qpn);
    if (out.contents == nullptr) {
        if (requester.retry_at == 0) start_retry_timer(nic, qp);  // who does not take packets may be dead
        return step::blocked;
    }
    packet_header& header = out.contents->header;
    header.psn = psn::add(from.first_psn, requester.packet);
    if (qp.is_initiator()) dynamic::stamp(nic, qp, header);
    std::uint32_t psns = 1;
    if (from.request.kind == operation::read) {
        fill_read(qp, from, requester.packet, header);
        psns = from.packets - requester.packet;
    } else if (from.request.is_atomic()) {
        fill_atomic(from, header);
    } else if (const auto problem = fill_message(nic, qp, from, requester.packet, out);
               problem != vendor_syndrome::none) {
        from.failed = {syndrome::local_protection, problem};
        return step::failed;
    }
    if (nic.link.on()) header.ready_ns = ready_time(nic, requester);
    wire::finish(nic, qp, out);
    requester.packet += psns;
    const std::uint32_t end = psn::add(from.first_psn, requester.packet);
    if (psn::difference(end, requester.sent_end) > 0) requester.sent_end = end;
    if (requester.retry_at == 0) start_retry_timer(nic, qp);
    return step::sent;
}

/// Not now, and not because of the link.
bool hold_back(requester_state& requester) {
    requester.held = true;
    return false;
}

}  // namespace

void start_retry_timer(hca& nic, queue_pair& qp) {
    const std::uint64_t timeout = acknowledge_timeout_ns(qp.attributes.timeout);
    qp.requester.retry_at =
        timeout == 0 ? 0 : nic.now + std::max(timeout, nic.config.shortest_timeout_ns) + nic.link.patience_ns();
}

bool advance(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (!qp.sends_packets()) return false;
    if (requester.hold_until != 0 && nic.now < requester.hold_until) return hold_back(requester);
    requester.hold_until = 0;
    if (requester.sending == requester.newest && !fetch(nic, qp)) return false;
    if (qp.state == qp_state::error) return true;
    flight& next = requester.at(requester.sending);
    if (next.failed) {
        if (requester.sending != requester.oldest) return false;
        completions::fail_send(nic, qp, next.failed);
        return true;
    }
    if (next.request.kind == operation::bind) return pass_bind(nic, qp) || hold_back(requester);
    if (next.packets == 0) return fence_holds(qp, next) ? hold_back(requester) : pass_nop(nic, qp);
    if (must_wait(nic, qp, next) || (qp.is_initiator() && !dynamic::connect(nic, qp, next)))
        return hold_back(requester);
    if (next.request.fenced) memory::flush_posted(nic, qp);  // it may send what those before it have read
    const step done = send_packet(nic, qp, next);
    if (done == step::blocked) return false;
    if (done == step::sent && requester.packet >= next.packets) {
        ++requester.sending;
        requester.packet = 0;
    }
    return true;
}

bool has_work(const queue_pair& qp) {
    const auto& requester = qp.requester;
    return requester.oldest != requester.newest || requester.consumed != requester.produced;
}

void check_drained(hca& nic, queue_pair& qp) {
    if (!qp.draining || qp.requester.oldest != qp.requester.newest) return;
    qp.draining = false;
    nic.say(qp, "state", "drained");
    completions::raise_event(qp, IBV_EVENT_SQ_DRAINED);
}

}  // namespace accel::softnic::requester
