// SPDX-License-Identifier: Apache-2.0
#include "engine/nic.hpp"

#include "transport/ahead.hpp"
#include "transport/completions.hpp"
#include "transport/datagram.hpp"
#include "transport/dynamic.hpp"
#include "transport/memory.hpp"
#include "transport/requester.hpp"
#include "transport/responder.hpp"
#include "transport/wire.hpp"

#include <algorithm>
#include <cstring>

#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

constexpr int rounds_per_progress = 8;
constexpr int steps_per_round = 16;
constexpr int packets_per_round = 256;
constexpr int early_packets_per_round = 8;  ///< so that no packet that is due waits long for those that are not
constexpr std::uint64_t reap_interval_ns = 100'000'000;

}  // namespace

nic::nic(settings chosen, std::unique_ptr<fabric> joined) : state(std::move(chosen), std::move(joined)) {}

// ---- the loop

/// A small message crosses in one call: doorbell, packet, acknowledgement, completion.
bool nic::progress(std::uint64_t now_ns) {
    state.now = now_ns;
    state.wire_now = state.wire_clock == nullptr ? now_ns : state.wire_clock();
    for (device_clock& clock : clocks_) clock.show(now_ns);
    bool moved = take_doorbells();
    for (int round = 0; round < rounds_per_progress; ++round) {
        bool again = run_queue_pairs();
        again |= state.link.on() ? receive_over_link() : receive_packets();
        if (!state.held.empty()) again |= wire::release_held(state);
        moved |= again;
        if (!again) break;
    }
    if (state.link.on())
        moved |= place_ahead();
    else if (!moved && !state.deferring.empty())
        static_cast<void>(memory::settle(state));
    ahead::push(state);
    if (now_ns >= state.port_up_at) restore_ports();
    if (now_ns >= reap_at_) reap_sometimes();
    return moved;
}

bool nic::has_something_to_do() {
    if (busy() || look_at_doorbells()) return true;
    return state.link.on() ? !arrived_.empty() || state.net->earliest() != nullptr : state.net->receive() != nullptr;
}

/// By index: running one may schedule another.
bool nic::run_queue_pairs() {
    bool moved = false;
    // NOLINTNEXTLINE(modernize-loop-convert)
    for (std::size_t at = 0; at < state.scheduled.size(); ++at) moved |= run(*state.scheduled[at]);
    std::erase_if(state.scheduled, [](queue_pair* qp) {
        const auto& responder = qp->responder;
        const bool stays = requester::has_work(*qp) || !responder.replies.empty() || !responder.posted.empty() ||
                           (qp->state == qp_state::error && !qp->dynamic.is_connection);
        if (!stays) qp->scheduled = false;
        return !stays;
    });
    return moved;
}

bool nic::run(queue_pair& qp) {
    bool moved = false;
    for (int step = 0; step < steps_per_round && responder::advance(state, qp); ++step) moved = true;
    if (!qp.responder.posted.empty() && state.now >= qp.responder.post_by) memory::write_posted(state, qp);
    if (qp.state == qp_state::error) return run_error_state(qp) || moved;
    for (int step = 0; step < steps_per_round; ++step) {
        if (!(qp.is_datagram() ? datagram::advance(state, qp) : requester::advance(state, qp))) break;
        moved = true;
    }
    if (qp.requester.retry_at != 0) requester::on_time(state, qp);
    return moved;
}

bool nic::run_error_state(queue_pair& qp) {
    const std::uint64_t before = state.count.cqes;
    completions::flush(state, qp);
    return state.count.cqes != before;
}

bool nic::receive_packets() {
    bool moved = false;
    for (int count = 0; count < packets_per_round; ++count) {
        const packet* in = state.net->receive();
        if (in == nullptr) break;
        ++state.count.packets_received;
        packet_header copy;
        if (const auto good = examine(*in, copy)) deliver(*good);
        state.net->release();
        moved = true;
    }
    return moved;
}

/// The packet that is due first, or null and the time when it will be.
inbox::entry* nic::next_arrival() {
    state.next_due = hca::never;
    while (inbox::entry* const next = state.net->earliest()) {
        if (next->due_ns > state.wire_now) {
            state.next_due = next->due_ns;
            return nullptr;
        }
        if (next->passed_port) return next;
        next->passed_port = true;
        next->due_ns = state.link.receive(state.net->waiting_packet(*next).header, next->due_ns);
    }
    return nullptr;
}

/// As receive_packets(), but nothing is delivered before the link has brought it. True also while memory takes time.
bool nic::receive_over_link() {
    if (state.wire_clock != nullptr) state.wire_now = state.wire_clock();
    bool moved = false;
    for (int count = 0; count < packets_per_round; ++count) {
        moved |= take_arrivals();
        if (arrived_.empty()) break;
        place_due(arrived_.front());
        if (waits_for_more(arrived_.front())) break;
        if (!ahead::is_in_memory(arrived_.front().placed)) return true;
        deliver_arrival(arrived_.front());
        arrived_.front() = {};
        arrived_.pop_front();
        moved = true;
    }
    return moved;
}

/// A last piece waits a little for the next one, such as the header behind a payload: then one look of the copy kernel
/// finds both.
bool nic::waits_for_more(const inbox::entry& next) const {
    constexpr std::uint64_t together_ns = 1'500;
    const std::uint64_t until = next.due_ns + together_ns;
    return next.placed.awaited && state.wire_now < until && state.next_due <= until;
}

/// Takes in what is due, and begins to write what takes time. Acknowledgements do not wait for that. True: there were
/// some.
bool nic::take_arrivals() {
    bool any = false;
    while (!arrived_.full() && next_arrival() != nullptr) {
        const inbox::entry taken = state.net->take_waiting();
        if (taken.express()) {
            deliver_arrival(taken);
            any = true;
            continue;
        }
        arrived_.push_back(taken);
        place_due(arrived_.back());
    }
    return any;
}

/// Once more in front of all others, if something was in the way before.
void nic::place_due(inbox::entry& next) {
    packet_header copy;
    if (next.placed.engine != nullptr || !state.defers) return;
    if (const auto good = examine_waiting(state.net->waiting_packet(next), copy))
        ahead::place_due(state, *good, next.placed);
}

void nic::deliver_arrival(const inbox::entry& next) {
    ++state.count.packets_received;
    state.arrived_ns = next.due_ns;
    packet_header copy;
    const auto good = examine_waiting(state.net->waiting_packet(next), copy);
    const bool lost = next.placed.awaited && next.placed.engine->state_of(next.placed.mark) == write_state::lost;
    state.placed = next.placed.engine == nullptr || lost ? nullptr : &next.placed;
    if (good) deliver(*good);
    state.placed = nullptr;
    state.net->release_waiting(next, copy.has(packet_flag::first) || copy.has(packet_flag::last));
    judge(copy);
}

/// Once a call of progress(), behind all that is due.
bool nic::place_ahead() {
    int left = early_packets_per_round;
    state.net->look_ahead([&](inbox::entry& next) {
        if (left == 0) return inbox::look::later;
        packet_header copy;
        const auto good = examine_waiting(state.net->waiting_packet(next), copy);
        const inbox::look seen = good ? ahead::place(state, *good, next.placed) : inbox::look::done;
        if (next.placed.engine != nullptr) --left;
        return seen;
    });
    return left != early_packets_per_round;
}

/// As examine(), each time anew: the header must not change while it is looked at.
std::optional<arrival> nic::examine_waiting(const packet& in, packet_header& copy) const {
    copy = in.header;
    if (copy.payload_bytes > max_mtu || copy.to.device >= state.devices.size()) return std::nullopt;
    return arrival{copy, std::span(in.payload).first(copy.payload_bytes)};
}

/// Was the message in memory when the link says, and how long after that? Only its last packet tells.
void nic::judge(const packet_header& header) {
    const bool is_answer = header.kind == packet_kind::acknowledge || header.kind == packet_kind::negative_acknowledge;
    const bool ends = header.has(packet_flag::last) || header.kind == packet_kind::atomic_response;
    if (is_answer || !ends) return;
    const std::uint64_t now = state.wire_clock == nullptr ? state.wire_now : state.wire_clock();
    node_record& shown = state.net->own_record();
    shown.timed_messages.store(++state.count.timed_messages, std::memory_order_relaxed);
    if (now > state.arrived_ns)
        shown.lateness_ns.store(state.count.lateness_ns += now - state.arrived_ns, std::memory_order_relaxed);
    if (!link_model::is_late(header.ready_ns, state.arrived_ns, now)) return;
    shown.late_messages.store(++state.count.late_messages, std::memory_order_relaxed);
}

/// Rings of other processes are shared with them: nothing in a header is believed, and it is read once, into
/// `copy`. Our own packets are looked at where they are, and may refer to their bytes.
std::optional<arrival> nic::examine(const packet& in, packet_header& copy) {
    const bool own = state.net->receiving_from_self();
    if (!own) copy = in.header;
    const packet_header& header = own ? in.header : copy;
    if (header.payload_bytes > max_mtu || header.to.device >= state.devices.size()) return std::nullopt;
    if (!own || header.direct == 0) return arrival{header, std::span(in.payload).first(header.payload_bytes)};
    const std::byte* where = nullptr;
    std::memcpy(&where, in.payload.data(), sizeof where);
    return arrival{header, {where, header.payload_bytes}};
}

void nic::deliver(const arrival& in) {
    const packet_header& header = in.header;
    queue_pair* qp = state.find_receiver(header);
    if (qp == nullptr) {
        ++state.count.packets_dropped;
        return;
    }
    if (state.log.on()) state.say(*qp, "rx", "{} from qp {:#06x}", wire::describe(header), header.from_qpn);
    if (header.kind == packet_kind::datagram) return datagram::on_packet(state, *qp, in);
    if (header.is_response()) {
        if (header.from_qpn == qp->attributes.remote_qpn) requester::on_response(state, *qp, in);
        return;
    }
    if (qp->is_target()) return dynamic::on_request(state, *qp, in);
    if (!qp->is_initiator() && header.session == 0) responder::on_request(state, *qp, in);
}

void nic::reap_sometimes() {
    reap_at_ = state.now + reap_interval_ns;
    state.net->reap_dead_nodes();
    if (state.link.on()) state.link.expect_nodes(state.net->count_nodes());
}

void nic::restore_ports() {
    state.port_up_at = hca::never;
    for (device& one : state.devices) {
        for (const port& each : one.ports()) {
            if (each.up || each.up_again_at == 0) continue;
            if (state.now >= each.up_again_at)
                wire::set_port(state, each.address, true, 0);
            else
                state.port_up_at = std::min(state.port_up_at, each.up_again_at);
        }
    }
}

// ---- objects

uar_page& nic::add_uar(int command_file) {
    return uars_.emplace_back(command_file, last_uar_++);
}

uar_page* nic::find_uar(std::uint32_t number) {
    const auto found =
        std::find_if(uars_.begin(), uars_.end(), [number](const uar_page& page) { return page.number() == number; });
    return found == uars_.end() ? nullptr : &*found;
}

void nic::remove_uar(std::uint32_t number) {
    uars_.remove_if([number](const uar_page& page) { return page.number() == number; });
}

void nic::remove_clock(const device_clock& clock) {
    clocks_.remove_if([&clock](const device_clock& each) { return &each == &clock; });
}

std::shared_ptr<completion_queue> nic::create_cq(completion_queue_options options) {
    const std::uint32_t number = next_number();
    return cqs_[number] = std::make_shared<completion_queue>(number, std::move(options));
}

void nic::remove_cq(const completion_queue& cq) {
    cqs_.erase(cq.number());
}

queue_pair* nic::create_qp(int device, queue_pair_options options) {
    const auto number = state.net->claim_qpn(device);
    if (!number) return nullptr;
    auto made = std::make_unique<queue_pair>(*number, device, std::move(options));
    if (uar_page* page = find_uar(made->options.uar_page)) page->add(*made);
    return &state.devices[static_cast<std::size_t>(device)].add_queue_pair(std::move(made));
}

void nic::destroy_qp(queue_pair& qp) {
    memory::drain(state, qp);
    dynamic::forget_connections(state, qp);
    state.unschedule(qp);
    if (uar_page* page = find_uar(qp.options.uar_page)) page->remove(qp);
    state.net->release_qpn(qp.device, qp.number);
    state.devices[static_cast<std::size_t>(qp.device)].remove_queue_pair(qp.number);
}

void nic::forget_channel(const event_pipe* channel) {
    for (const auto& [number, cq] : cqs_) cq->forget_channel(channel);
}

}  // namespace accel::softnic
