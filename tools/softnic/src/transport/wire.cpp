// SPDX-License-Identifier: Apache-2.0
#include "transport/wire.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <infiniband/verbs.h>

namespace accel::softnic::wire {
namespace {

constexpr std::uint64_t reorder_patience_ns = 1'000'000;
constexpr std::uint64_t default_delay_us = 100;

/// For packets to queue pairs that nobody has.
packet& nowhere() {
    static packet& scratch = *new packet;
    return scratch;
}

bool port_is_up(hca& nic, port_address where) {
    if (where.device >= nic.devices.size()) return false;
    const port* found = nic.devices[where.device].find_port(where.port);
    return found != nullptr && found->up;
}

const fault_rule* choose_fault(hca& nic, const packet_header& header) {
    if (nic.faults.empty()) return nullptr;
    constexpr fault_action actions[]{fault_action::drop, fault_action::duplicate, fault_action::delay,
                                     fault_action::reorder, fault_action::port_down};
    return nic.faults.decide({nic.node(), header.from_qpn, header.to_qpn, header.kind}, actions);
}

void hold(hca& nic, const outgoing& out, std::uint64_t release_at, bool until_next) {
    auto copy = std::make_unique<packet>();
    std::memcpy(copy.get(), out.contents, offsetof(packet, payload) + out.contents->header.payload_bytes);
    nic.held.push_back({release_at, until_next, out.to_node, std::move(copy)});
}

/// True if the packet still goes out now.
bool apply_fault(hca& nic, const outgoing& out, const fault_rule& rule) {
    const std::uint64_t duration_us = rule.duration_us != 0 ? rule.duration_us : default_delay_us;
    switch (rule.action) {
        case fault_action::duplicate:
            hold(nic, out, nic.now, false);
            return true;
        case fault_action::delay:
            hold(nic, out, nic.now + duration_us * 1000, false);
            return false;
        case fault_action::reorder:
            hold(nic, out, nic.now + reorder_patience_ns, true);
            return false;
        case fault_action::port_down:
            set_port(nic, out.contents->header.from, false,
                     rule.duration_us != 0 ? nic.now + rule.duration_us * 1000 : 0);
            [[fallthrough]];
        default:
            ++nic.count.packets_dropped;
            return false;
    }
}

/// The fault held it back at the port, so it has yet to leave.
bool send_held(hca& nic, const held_packet& item) {
    packet* slot = nic.net->reserve(item.to_node);
    if (slot == nullptr) return false;
    std::memcpy(slot, item.contents.get(), offsetof(packet, payload) + item.contents->header.payload_bytes);
    if (nic.link.on()) {
        slot->header.ready_ns = nic.wire_now;
        nic.link.send(slot->header);
    }
    nic.net->commit(item.to_node);
    ++nic.count.packets_sent;
    return true;
}

void release_reordered(hca& nic, int to_node) {
    std::erase_if(nic.held, [&](const held_packet& item) {
        return item.until_next && item.to_node == to_node && send_held(nic, item);
    });
}

}  // namespace

bool outgoing::refer(const std::byte* bytes) const {
    if (bytes == nullptr) return false;
    contents->header.direct = 1;
    std::memcpy(contents->payload.data(), &bytes, sizeof bytes);
    return true;
}

outgoing begin(hca& nic, const queue_pair& from, port_address to, std::uint32_t to_qpn, urgency how) {
    const int node = nic.net->owner_of(to.device, to_qpn);
    const std::uint32_t spare = nic.link.on() && how == urgency::in_turn ? express_slots : 0;
    packet* contents = node < 0 ? &nowhere() : nic.net->reserve(node, spare);
    if (contents == nullptr) {
        if (node == nic.node()) nic.own_ring_full_at = nic.now;
        return {};
    }
    contents->header = packet_header{};
    contents->header.from = {static_cast<std::uint8_t>(from.device), from.attributes.port};
    contents->header.to = to;
    contents->header.from_qpn = from.number;
    contents->header.to_qpn = to_qpn;
    contents->header.express = how == urgency::express ? 1 : 0;
    return {contents, node, node == nic.node() && !nic.config.strict && nic.faults.empty() && !nic.link.on()};
}

std::uint64_t finish(hca& nic, const queue_pair& from, const outgoing& out) {
    packet_header& header = out.contents->header;
    const fault_rule* rule = choose_fault(nic, header);
    if (nic.link.on()) nic.link.send(header);  // what gets lost has left, too
    const std::uint64_t arrives_ns = header.arrives_ns;
    if (nic.log.on()) {
        nic.say(from, rule != nullptr ? to_string(rule->action) : "tx", "{}{}", describe(header),
                out.to_node < 0 ? " (no such queue pair)" : "");
    }
    if (out.to_node < 0 || !port_is_up(nic, header.from) || !port_is_up(nic, header.to)) {
        ++nic.count.packets_dropped;
        return arrives_ns;
    }
    if (rule != nullptr && !apply_fault(nic, out, *rule)) return arrives_ns;
    nic.net->commit(out.to_node);
    ++nic.count.packets_sent;
    if (!nic.held.empty()) release_reordered(nic, out.to_node);
    return arrives_ns;
}

bool release_held(hca& nic) {
    const std::size_t before = nic.held.size();
    std::erase_if(nic.held,
                  [&](const held_packet& item) { return nic.now >= item.release_at && send_held(nic, item); });
    return nic.held.size() != before;
}

void set_port(hca& nic, port_address where, bool up, std::uint64_t up_again_at) {
    device& owner = nic.devices[where.device];
    port* found = owner.find_port(where.port);
    if (found == nullptr || found->up == up) return;
    found->up = up;
    found->up_again_at = up_again_at;
    if (up_again_at != 0) nic.port_up_at = std::min(nic.port_up_at, up_again_at);
    for (const auto& listener : nic.listeners) {
        if (listener.device != where.device) continue;
        if (listener.pipe) listener.pipe->send(where.port, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
        tell(listener.subscribers, {device_event::port_change, where.port, up});
    }
}

std::string describe(const packet_header& header) {
    std::string text = fmt::format("{} -> qp {:#06x} psn {}", to_string(header.kind), header.to_qpn, header.psn);
    const auto append = std::back_inserter(text);
    if (header.payload_bytes != 0) fmt::format_to(append, " {}B", header.payload_bytes);
    if (header.kind == packet_kind::negative_acknowledge) fmt::format_to(append, " {}", to_string(header.nak));
    const bool remote = header.kind == packet_kind::read_request || header.kind == packet_kind::atomic_request ||
                        (header.kind == packet_kind::write && header.has(packet_flag::first));
    if (remote) fmt::format_to(append, " va {:#x} key {:#x} len {}", header.address, header.rkey, header.length);
    if (header.has(packet_flag::first)) text += " first";
    if (header.has(packet_flag::last)) text += " last";
    if (header.has(packet_flag::immediate)) text += " imm";
    if (header.has(packet_flag::ack_request)) text += " ackreq";
    return text;
}

}  // namespace accel::softnic::wire
