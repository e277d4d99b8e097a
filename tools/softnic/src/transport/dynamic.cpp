// SPDX-License-Identifier: Apache-2.0
#include "transport/dynamic.hpp"

#include "transport/datagram.hpp"
#include "transport/memory.hpp"
#include "transport/psn.hpp"
#include "transport/responder.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace accel::softnic::dynamic {
namespace {

constexpr std::size_t max_connections = 1 << 14;  ///< of one target
constexpr port_address nobody{static_cast<std::uint8_t>(max_devices), 0};

/// Greater than any that this initiator had, and than those of an earlier owner of its number. So the machine's
/// clock, which all processes share, and not the device's.
std::uint64_t next_session(std::uint64_t last) {
    const auto clock = std::chrono::steady_clock::now().time_since_epoch();
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(clock).count();
    return std::max(last + 1, static_cast<std::uint64_t>(nanoseconds));
}

void open(hca& nic, queue_pair& qp, const flight& first) {
    const datagram_address& to = first.request.destination;
    qp.attributes.remote = datagram::route(nic, qp, to).value_or(nobody);
    qp.attributes.remote_qpn = to.qpn;
    qp.dynamic.session = next_session(qp.dynamic.session);
    qp.dynamic.first_psn = first.first_psn;
    qp.dynamic.destination = to;
    nic.say(qp, "connect", "to dct {:#06x} psn {}", to.qpn, first.first_psn);
}

/// One end of a connection answers with the target's number, and places data with its rights.
std::unique_ptr<queue_pair> make_connection(const queue_pair& target) {
    queue_pair_options options = target.options;
    options.asynchronous = nullptr;  // events are about the target, and nothing that fails here fails it
    options.subscribers = nullptr;
    auto made = std::make_unique<queue_pair>(target.number, target.device, std::move(options));
    made->requester.flights = {};
    made->dynamic.is_connection = true;
    return made;
}

/// The event is armed anew each time.
void count_violation(queue_pair& target) {
    ++target.dynamic.violations;
    if (!std::exchange(target.dynamic.tells_violation, false)) return;
    tell(target.options.subscribers, {device_event::target_key_violation, target.number});
}

void start(hca& nic, queue_pair& target, queue_pair& end, const packet_header& first) {
    memory::flush_posted(nic, end);
    end.responder = responder_state{};
    end.responder.expected_psn = first.first_psn & psn_mask;
    end.attributes = target.attributes;
    end.attributes.remote = first.from;
    end.attributes.remote_qpn = first.from_qpn;
    end.attributes.max_dest_rd_atomic = limits::max_rd_atomic;
    end.state = qp_state::ready_to_receive;
    end.dynamic.session = first.session;
    end.dynamic.refused.reset();
    if (first.access_key == target.options.access_key) return;
    nic.say(target, "refuse", "access key {:#x} of qp {:#06x}", first.access_key, first.from_qpn);
    count_violation(target);
    end.state = qp_state::error;
    end.dynamic.refused = refusal{nak_code::remote_access, end.responder.expected_psn};
}

/// Null for packets of connections that have ended, and for more initiators than a target can have.
queue_pair* find_connection(hca& nic, queue_pair& target, const packet_header& in) {
    const std::uint32_t whose = std::uint32_t{in.from.device} << 24 | (in.from_qpn & 0xffffff);
    auto& all = target.dynamic.connections;
    auto found = all.find(whose);
    if (found == all.end()) {
        if (all.size() >= max_connections) return nullptr;
        found = all.emplace(whose, make_connection(target)).first;
    }
    queue_pair& end = *found->second;
    if (in.session < end.dynamic.session) return nullptr;
    if (in.session > end.dynamic.session) start(nic, target, end, in);
    return &end;
}

/// The answer may get lost: it is given again to whatever else comes.
void remember_refusal(queue_pair& end) {
    const auto& replies = end.responder.replies;
    if (replies.empty() || end.dynamic.refused) return;
    const reply& last = replies[replies.size() - 1];
    if (last.kind == packet_kind::negative_acknowledge) end.dynamic.refused = refusal{last.nak, last.psn};
}

}  // namespace

/// What was sent before stays in its connection: there the target knows whether it has done it. A new message may
/// follow in the same, to the same target. If nothing is on its way, it begins a new one, as an adapter disconnects
/// when it is idle.
bool connect(hca& nic, queue_pair& qp, const flight& next) {
    const auto& requester = qp.requester;
    const bool sent_before = requester.packet != 0 || psn::difference(next.first_psn, requester.sent_end) < 0;
    if (sent_before) return true;
    if (requester.sending != requester.oldest) return qp.dynamic.destination == next.request.destination;
    open(nic, qp, next);
    return true;
}

/// The target's completion says which LID the message came from: UCX answers there.
void stamp(hca& nic, const queue_pair& qp, packet_header& header) {
    header.source_lid = nic.devices[static_cast<std::size_t>(qp.device)].find_port(qp.attributes.port)->lid;
    header.session = qp.dynamic.session;
    header.access_key = qp.dynamic.destination.access_key;
    header.first_psn = qp.dynamic.first_psn;
}

void on_request(hca& nic, queue_pair& target, const arrival& in) {
    if (!target.receives_packets() || in.header.session == 0) return;
    queue_pair* end = find_connection(nic, target, in.header);
    if (end == nullptr) return;
    if (end->dynamic.refused)
        return responder::refuse(nic, *end, end->dynamic.refused->psn, end->dynamic.refused->code);
    responder::on_request(nic, *end, in);
    if (end->state == qp_state::error) remember_refusal(*end);
}

void forget_connections(hca& nic, queue_pair& target) {
    for (auto& [whose, end] : target.dynamic.connections) {
        memory::flush_posted(nic, *end);
        nic.unschedule(*end);
    }
    target.dynamic.connections.clear();
}

}  // namespace accel::softnic::dynamic
