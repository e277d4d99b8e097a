// SPDX-License-Identifier: Apache-2.0
#include "transport/ahead.hpp"

#include "transport/memory.hpp"
#include "transport/psn.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace accel::softnic::ahead {
namespace {

using look = inbox::look;

region_table& regions_of(hca& nic, const queue_pair& qp) {
    return nic.devices[static_cast<std::size_t>(qp.device)].regions;
}

/// What strict mode keeps back of earlier messages goes first.
bool is_written(hca& nic, queue_pair& qp) {
    if (!qp.responder.posted.empty()) memory::write_posted(nic, qp);
    return qp.responder.posted.empty();
}

look write(hca& nic, const memory_region& region, std::uint64_t address, const arrival& in, bool due, placement& into) {
    const std::uint64_t to = region.engine_address(address);
    std::uint64_t mark = 0;
    switch (region.engine->write_early(to, in.data.data(), in.data.size(),
                                       due ? write_order::due_behind : write_order::any, mark)) {
        case write_start::later:
            return look::later;
        case write_start::refused:
            return look::done;
        default:
            break;
    }
    if (region.engine->defers()) memory::note_early(nic, region.engine, mark);
    into = {region.engine, to, mark, !due, false};
    if (!due) ++nic.count.early_packets;
    return look::done;
}

/// The state of the message that this packet goes on with, or begins, if its turn has come.
std::optional<message_ahead> follow(const queue_pair& qp, const packet_header& in) {
    const auto& responder = qp.responder;
    message_ahead at = responder.ahead;
    if (!at.begun) {
        at.begun = true;
        at.kind = responder.in_message ? responder.message : in.kind;
        at.psn = responder.expected_psn;
        at.left = responder.in_message ? responder.write_left : 0;
        at.address = responder.write_address;
        at.key = responder.write_key;
        at.mark = responder.in_message ? dma_engine::everything : 0;
    }
    if (in.psn != at.psn || in.kind != at.kind) return std::nullopt;
    at.psn = psn::add(at.psn, 1);
    return at;
}

/// The same for a write, up to behind this packet, and where that goes.
std::optional<message_ahead> follow_write(hca& nic, const queue_pair& qp, const arrival& in, memory_region*& region,
                                          std::uint64_t& address) {
    const packet_header& header = in.header;
    auto at = follow(qp, header);
    if (!at || header.has(packet_flag::first) != (at->left == 0)) return std::nullopt;
    const auto& regions = regions_of(nic, qp);
    if (header.has(packet_flag::first)) {
        at->address = header.address;
        at->key = header.rkey;
        at->left = header.length;
        const auto all = regions.check(at->key, user_of(qp), at->address, at->left, access::remote_write);
        if ((qp.attributes.access & access::remote_write) == 0 || all.status != access_check::ok) return std::nullopt;
    }
    const auto size = static_cast<std::uint32_t>(in.data.size());
    if (header.has(packet_flag::last) ? size != at->left : size != qp.mtu_bytes() || size >= at->left)
        return std::nullopt;
    const auto found = regions.check(at->key, user_of(qp), at->address, size, access::remote_write);
    if (found.status != access_check::ok) return std::nullopt;
    region = found.region;
    address = std::exchange(at->address, at->address + size);
    at->left -= size;
    return at;
}

/// Everything before this message has been delivered.
bool is_in_front(const queue_pair& qp, const packet_header& first) {
    return !qp.responder.ahead.begun || first.psn == qp.responder.expected_psn;
}

look place_write(hca& nic, queue_pair& qp, const arrival& in, placement& into) {
    memory_region* region = nullptr;
    std::uint64_t address = 0;
    if (in.header.has(packet_flag::first) && !is_in_front(qp, in.header)) return look::passed_over;
    auto at = follow_write(nic, qp, in, region, address);
    if (!at) return look::passed_over;
    if (!is_written(nic, qp)) return look::later;
    const look done = write(nic, *region, address, in, false, into);
    if (into.engine == nullptr) return done;
    at->mark = into.mark;
    at->engine = into.engine;
    qp.responder.ahead = *at;
    return done;
}

look place_scattered(hca& nic, const queue_pair& qp, std::span<const segment> segments, std::uint64_t offset,
                     const arrival& in, placement& into) {
    const segment* piece = memory::find_piece(segments, offset, in.data.size());
    if (piece == nullptr) return look::done;
    const std::uint64_t address = piece->address + offset;
    const auto found =
        regions_of(nic, qp).check(piece->lkey, user_of(qp), address, in.data.size(), access::local_write);
    if (found.status != access_check::ok) return look::done;
    const look done = write(nic, *found.region, address, in, false, into);
    if (into.engine != nullptr && into.engine->defers()) memory::note_deferring(nic, into.engine);
    return done;
}

/// Its first packet takes the receive, in its time.
look place_send(hca& nic, queue_pair& qp, const arrival& in, placement& into) {
    auto& responder = qp.responder;
    if (in.header.has(packet_flag::first) || !responder.in_message || !responder.holds_receive)
        return look::passed_over;
    const auto at = follow(qp, in.header);
    if (!at || in.data.size() != qp.mtu_bytes()) return look::passed_over;
    if (!is_written(nic, qp)) return look::later;
    const auto packets = static_cast<std::uint64_t>(psn::difference(in.header.psn, responder.expected_psn));
    const look done = place_scattered(nic, qp, responder.receive.segments,
                                      responder.message_bytes + packets * qp.mtu_bytes(), in, into);
    if (into.engine != nullptr) responder.ahead = *at;
    return done;
}

/// Of a read that is the oldest request without its answer.
look place_response(hca& nic, queue_pair& qp, const arrival& in, placement& into) {
    auto& requester = qp.requester;
    if (!qp.sends_packets() || requester.oldest == requester.newest) return look::passed_over;
    const flight& first = requester.at(requester.oldest);
    const std::int32_t at = psn::difference(in.header.psn, first.first_psn);
    if (first.request.kind != operation::read || first.failed || at < static_cast<std::int32_t>(first.received))
        return look::passed_over;
    if (at + 1 >= static_cast<std::int32_t>(first.packets) || in.data.size() != qp.mtu_bytes())
        return look::passed_over;
    if (!is_written(nic, qp)) return look::later;
    return place_scattered(nic, qp, first.request.segments, static_cast<std::uint64_t>(at) * qp.mtu_bytes(), in, into);
}

bool is_for_responder(const queue_pair& qp, const packet_header& in) {
    return qp.receives_packets() && !qp.is_datagram() && in.session == 0 && in.from == qp.attributes.remote;
}

}  // namespace

look place(hca& nic, const arrival& in, placement& into) {
    const packet_header& header = in.header;
    if (in.data.empty() || header.has(packet_flag::last)) return look::done;
    queue_pair* qp = nic.find_receiver(header);
    if (qp == nullptr || header.from_qpn != qp->attributes.remote_qpn) return look::done;
    if (header.kind == packet_kind::read_response) return place_response(nic, *qp, in, into);
    if (!is_for_responder(*qp, header)) return look::done;
    if (header.kind == packet_kind::write) return place_write(nic, *qp, in, into);
    return header.kind == packet_kind::send ? place_send(nic, *qp, in, into) : look::done;
}

/// Strict mode keeps the last piece back; with immediate data the message may have to wait for a receive.
void place_due(hca& nic, const arrival& in, placement& into) {
    const packet_header& header = in.header;
    if (!nic.defers || header.kind != packet_kind::write || in.data.empty()) return;
    const bool last = header.has(packet_flag::last);
    if (last && (nic.config.strict || header.has(packet_flag::immediate))) return;
    queue_pair* qp = nic.find_receiver(header);
    if (qp == nullptr || header.from_qpn != qp->attributes.remote_qpn || !is_for_responder(*qp, header)) return;
    memory_region* region = nullptr;
    std::uint64_t address = 0;
    auto at = follow_write(nic, *qp, in, region, address);
    if (!at || !region->engine->defers()) return;
    auto& ahead = qp->responder.ahead;
    const bool first = header.has(packet_flag::first);
    const bool behind_early = ahead.begun && !(first && is_in_front(*qp, header));
    if (!last) {
        if ((first && behind_early) || !is_written(nic, *qp)) return;
        static_cast<void>(write(nic, *region, address, in, true, into));
        at->mark = into.mark;
    } else if (!behind_early || ahead.engine->keeps_order_with(*region->engine)) {
        const std::uint64_t after = behind_early ? ahead.mark : first ? 0 : at->mark;
        const std::uint64_t to = region->engine_address(address);
        if (region->engine->write_last(to, in.data.data(), in.data.size(), after, at->mark))
            into = {region->engine, to, at->mark, false, true};
    }
    if (into.engine == nullptr) return;
    at->engine = into.engine;
    ahead = *at;
}

bool is_in_memory(const placement& of) {
    return !of.awaited || of.engine->state_of(of.mark) != write_state::under_way;
}

void push(hca& nic) {
    std::erase_if(nic.early,
                  [](const auto& each) { return each.engine->state_of(each.mark) != write_state::under_way; });
}

}  // namespace accel::softnic::ahead
