// SPDX-License-Identifier: Apache-2.0
// Requester: acknowledgements, refusals, responses, and the timers for when nothing comes.
#include "transport/completions.hpp"
#include "transport/memory.hpp"
#include "transport/psn.hpp"
#include "transport/requester.hpp"

#include <algorithm>

namespace accel::softnic::requester {
namespace {

constexpr unsigned for_ever = 7;  ///< RNR retry count that means "no limit"

/// Is this an answer to something we sent and still wait for? Anything else is old, or made up.
bool is_expected(const requester_state& requester, std::uint32_t psn) {
    return psn::difference(psn, requester.unacknowledged) >= 0 && psn::difference(psn, requester.sent_end) < 0;
}

std::uint32_t last_psn(const flight& from) {
    return psn::add(from.first_psn, from.packets - 1);
}

void note_progress(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    requester.retries = 0;
    requester.rnr_retries = 0;
    requester.rewound_to = psn_mask + 1;
    requester.retry_at = 0;
    if (requester.oldest != requester.newest) start_retry_timer(nic, qp);
}

void retire_oldest(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    flight& done = requester.at(requester.oldest);
    if (done.packets != 0) requester.unacknowledged = psn::add(last_psn(done), 1);
    if (requester.oldest == requester.sending) {  // acknowledged while we were going back over it
        ++requester.sending;
        requester.packet = 0;
    }
    ++requester.oldest;
    completions::complete_send(nic, qp, done.request);
}

/// NOPs behind what has just been completed.
void retire_nops(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    while (requester.oldest != requester.sending && requester.at(requester.oldest).packets == 0 &&
           !requester.at(requester.oldest).failed)
        retire_oldest(nic, qp);
}

/// Part of a long message has arrived: moves the window, completes nothing.
bool acknowledge_part(requester_state& requester, std::uint32_t psn) {
    if (requester.oldest == requester.newest) return false;
    const flight& first = requester.at(requester.oldest);
    if (first.packets == 0 || first.request.needs_response()) return false;
    const std::int32_t offset = psn::difference(psn, first.first_psn);
    if (offset < 0 || psn::difference(psn, last_psn(first)) >= 0) return false;
    if (psn::difference(psn, requester.unacknowledged) < 0) return false;
    requester.unacknowledged = psn::add(psn, 1);
    const auto arrived = static_cast<std::uint32_t>(offset) + 1;
    if (requester.sending == requester.oldest && requester.packet < arrived) requester.packet = arrived;
    return true;
}

/// Everything up to and including `psn` has arrived. Stops in front of a read that has no answer yet.
void acknowledge(hca& nic, queue_pair& qp, std::uint32_t psn) {
    auto& requester = qp.requester;
    bool progress = false;
    while (requester.oldest != requester.newest && qp.state != qp_state::error) {
        const flight& first = requester.at(requester.oldest);
        if (first.packets == 0 || first.failed) break;
        if (psn::difference(psn, last_psn(first)) < 0 || !first.answered()) break;
        retire_oldest(nic, qp);
        retire_nops(nic, qp);
        progress = true;
    }
    if (acknowledge_part(requester, psn) || progress) note_progress(nic, qp);
}

/// The first PSN that still needs something from the other side.
std::uint32_t resume_psn(queue_pair& qp) {
    auto& requester = qp.requester;
    const flight& first = requester.at(requester.oldest);
    if (first.request.needs_response()) return psn::add(first.first_psn, first.received);
    return psn::difference(requester.unacknowledged, first.first_psn) > 0 ? requester.unacknowledged : first.first_psn;
}

/// Goes back for a gap that an answer made visible; once for each gap, the timer is for the rest.
void go_back(hca& nic, queue_pair& qp, std::uint32_t psn) {
    auto& requester = qp.requester;
    if (requester.rewound_to == psn) return;
    requester.rewound_to = psn;
    rewind(nic, qp, psn);
}

void on_rnr(hca& nic, queue_pair& qp, const packet_header& nak) {
    auto& requester = qp.requester;
    if (qp.attributes.rnr_retry != for_ever && requester.rnr_retries++ >= qp.attributes.rnr_retry) {
        completions::fail_send(nic, qp, {syndrome::rnr_retry_exceeded, vendor_syndrome::rnr_retry});
        return;
    }
    rewind(nic, qp, nak.psn);
    requester.hold_until = nic.now + rnr_wait_ns(nak.rnr_timer);
    requester.retry_at = 0;  // starts again with the next packet
}

failure failure_of(nak_code code) {
    switch (code) {
        case nak_code::remote_access:
            return {syndrome::remote_access, vendor_syndrome::remote_access};
        case nak_code::invalid_request:
            return {syndrome::remote_invalid_request, vendor_syndrome::remote_invalid_request};
        default:
            return {syndrome::remote_operation, vendor_syndrome::remote_operation};
    }
}

void on_nak(hca& nic, queue_pair& qp, const packet_header& nak) {
    auto& requester = qp.requester;
    acknowledge(nic, qp, psn::add(nak.psn, psn_mask));
    if (requester.oldest == requester.newest || qp.state == qp_state::error) return;
    const flight& first = requester.at(requester.oldest);
    if (nak.nak == nak_code::sequence)
        rewind(nic, qp, resume_psn(qp));
    else if (psn::difference(nak.psn, last_psn(first)) > 0)
        go_back(nic, qp, resume_psn(qp));  // a read in front of it has lost its answer
    else if (nak.nak == nak_code::receiver_not_ready)
        on_rnr(nic, qp, nak);
    else
        completions::fail_send(nic, qp, failure_of(nak.nak));
}

vendor_syndrome take_data(hca& nic, queue_pair& qp, flight& to, const arrival& in) {
    if (in.header.payload_bytes == 0) return vendor_syndrome::none;
    const std::uint64_t offset = std::uint64_t{to.received} * qp.mtu_bytes();
    const auto problem = memory::scatter(nic, qp, to.request.segments, offset, in.data);
    const bool last = to.received + 1 == to.packets;
    if (problem != vendor_syndrome::none || !last || memory::settle(nic)) return problem;
    return vendor_syndrome::memory_fault;
}

void on_data(hca& nic, queue_pair& qp, const arrival& in) {
    auto& requester = qp.requester;
    acknowledge(nic, qp, psn::add(in.header.psn, psn_mask));  // a response acknowledges what was sent before it
    if (requester.oldest == requester.newest || qp.state == qp_state::error) return;
    flight& first = requester.at(requester.oldest);
    if (!first.request.needs_response() || first.failed) return;
    const std::int32_t ahead = psn::difference(in.header.psn, psn::add(first.first_psn, first.received));
    if (ahead > 0) go_back(nic, qp, resume_psn(qp));
    if (ahead != 0) return;
    const std::uint64_t left = first.request.length - std::uint64_t{first.received} * qp.mtu_bytes();
    if (in.header.payload_bytes != std::min<std::uint64_t>(left, qp.mtu_bytes())) {
        completions::fail_send(nic, qp, {syndrome::bad_response, vendor_syndrome::remote_operation});
        return;
    }
    if (const auto problem = take_data(nic, qp, first, in); problem != vendor_syndrome::none) {
        completions::fail_send(nic, qp, {syndrome::local_protection, problem});
        return;
    }
    ++first.received;
    if (first.received == first.packets) {
        acknowledge(nic, qp, in.header.psn);
    } else {
        requester.unacknowledged = psn::add(in.header.psn, 1);
        note_progress(nic, qp);
    }
}

}  // namespace

void rewind(hca& nic, queue_pair& qp, std::uint32_t psn) {
    auto& requester = qp.requester;
    for (std::uint32_t at = requester.oldest; at != requester.newest; ++at) {
        const flight& candidate = requester.at(at);
        const std::int32_t offset = psn::difference(psn, candidate.first_psn);
        if (offset < 0 || offset >= static_cast<std::int32_t>(candidate.packets)) continue;
        const bool back = at != requester.sending || static_cast<std::uint32_t>(offset) < requester.packet;
        if (!back || static_cast<std::int32_t>(at - requester.sending) > 0) return;
        requester.sending = at;
        requester.packet = static_cast<std::uint32_t>(offset);
        requester.held = true;
        ++nic.count.retransmissions;
        nic.say(qp, "rewind", "to psn {}", psn);
        return;
    }
}

void on_response(hca& nic, queue_pair& qp, const arrival& in) {
    if (!qp.sends_packets() || qp.is_datagram()) return;
    auto& requester = qp.requester;
    if (requester.oldest == requester.newest || !is_expected(requester, in.header.psn)) return;
    switch (in.header.kind) {
        case packet_kind::acknowledge: {
            acknowledge(nic, qp, in.header.psn);
            if (requester.oldest == requester.newest || qp.state == qp_state::error) break;
            const flight& first = requester.at(requester.oldest);
            const bool passed_over = !first.answered() && psn::difference(in.header.psn, last_psn(first)) > 0;
            if (passed_over) go_back(nic, qp, resume_psn(qp));
            break;
        }
        case packet_kind::negative_acknowledge:
            on_nak(nic, qp, in.header);
            break;
        default:
            on_data(nic, qp, in);
            break;
    }
    if (qp.draining) check_drained(nic, qp);
}

void on_time(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (!qp.sends_packets() || requester.retry_at == 0 || nic.now < requester.retry_at) return;
    if (requester.oldest == requester.newest) {
        requester.retry_at = 0;
        return;
    }
    // With very many queue pairs at once this device may not have come to all of them yet. Nothing is lost
    // then, and nobody is dead.
    constexpr std::uint64_t lately_ns = 2'000'000;
    if (nic.own_ring_full_at != 0 && nic.now - nic.own_ring_full_at < lately_ns) {
        start_retry_timer(nic, qp);
        return;
    }
    ++nic.count.timeouts;
    if (requester.retries++ >= qp.attributes.retry_count) {
        completions::fail_send(nic, qp, {syndrome::transport_retry_exceeded, vendor_syndrome::transport_retry});
        return;
    }
    nic.say(qp, "timeout", "retry {} of {}", requester.retries, qp.attributes.retry_count);
    requester.rewound_to = psn_mask + 1;
    start_retry_timer(nic, qp);
    rewind(nic, qp, resume_psn(qp));
}

}  // namespace accel::softnic::requester
