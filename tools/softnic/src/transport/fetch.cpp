// SPDX-License-Identifier: Apache-2.0
// Requester: from the doorbell to a decoded WQE.
#include "transport/completions.hpp"
#include "transport/psn.hpp"
#include "transport/requester.hpp"

#include <algorithm>
#include <array>

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic::requester {
namespace {

constexpr std::uint64_t latest_fetch_ns = 50'000;
using wqe_buffer = std::array<std::byte, 1024>;

/// Copies the WQE at `index` out of the ring, around its end if need be. Empty if the ring is not mapped any
/// more.
std::span<const std::byte> read_wqe(const queue_pair& qp, std::uint16_t index, wqe_buffer& buffer) {
    const auto read_wqebb = [&](std::uint32_t wqebb) {
        const std::uint32_t slot = (index + wqebb) & (qp.options.send_wqebbs - 1);
        return qp.options.send_buffer.read(std::uint64_t{slot} * wqebb_bytes, buffer.data() + wqebb * wqebb_bytes,
                                           wqebb_bytes);
    };
    if (!read_wqebb(0)) return {};
    const std::size_t size = send_wqe_bytes(std::span(buffer).first<16>());
    const auto wqebbs = static_cast<std::uint32_t>((size + wqebb_bytes - 1) / wqebb_bytes);
    for (std::uint32_t wqebb = 1; wqebb < wqebbs; ++wqebb)
        if (!read_wqebb(wqebb)) return {};
    return std::span(buffer).first(std::max(size, wqebb_bytes));
}

std::uint64_t hash_of(std::span<const std::byte> bytes) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte one : bytes) hash = (hash ^ static_cast<std::uint8_t>(one)) * 0x100000001b3;
    return hash;
}

/// The meaningful bytes of a WQE: what lies behind its `ds` belongs to nobody.
std::span<const std::byte> trimmed(std::span<const std::byte> wqe) {
    if (wqe.size() < 16) return wqe;
    return wqe.first(std::clamp<std::size_t>(send_wqe_bytes(wqe.first<16>()), 16, wqe.size()));
}

/// Strict mode: remembers what each WQE looked like when its doorbell rang, and puts the fetch off.
void remember_wqes(hca& nic, queue_pair& qp, std::uint16_t from) {
    auto& requester = qp.requester;
    wqe_buffer buffer;
    for (std::uint16_t index = from; static_cast<std::int16_t>(requester.produced - index) > 0;) {
        const auto wqe = trimmed(read_wqe(qp, index, buffer));
        if (wqe.empty()) return;
        requester.seen.emplace_back(index, hash_of(wqe));
        const auto wqebbs = (wqe.size() + wqebb_bytes - 1) / wqebb_bytes;
        index = static_cast<std::uint16_t>(index + std::max<std::size_t>(wqebbs, 1));
    }
    if (requester.fetch_after == 0) requester.fetch_after = nic.now + nic.random() % latest_fetch_ns;
}

bool changed_since_doorbell(queue_pair& qp, std::uint16_t index, std::span<const std::byte> wqe) {
    auto& seen = qp.requester.seen;
    while (!seen.empty() && seen.front().first != index) seen.pop_front();
    if (seen.empty()) return false;
    const bool changed = seen.front().second != hash_of(trimmed(wqe));
    seen.pop_front();
    return changed;
}

failure injected_failure(hca& nic, const queue_pair& qp) {
    const fault_rule* rule = nic.fault(qp, packet_kind::send, fault_action::local_protection, fault_action::error);
    if (rule == nullptr) return {};
    if (rule->action == fault_action::local_protection) return {syndrome::local_protection, vendor_syndrome::injected};
    return {static_cast<syndrome>(rule->syndrome), vendor_syndrome::injected};
}

/// A DUMP reads what it names and throws it away; whether it may is all that anybody notices.
bool may_dump(const hca& nic, const queue_pair& qp, const send_request& request) {
    const auto& regions = nic.devices[static_cast<std::size_t>(qp.device)].regions;
    return std::all_of(request.segments.begin(), request.segments.end(), [&](const segment& piece) {
        return piece.inlined ||
               regions.check(piece.lkey, user_of(qp), piece.address, piece.length, 0).status == access_check::ok;
    });
}

failure decode(hca& nic, queue_pair& qp, std::span<const std::byte> wqe, send_request& out) {
    if (wqe.empty()) return {syndrome::local_qp_operation, vendor_syndrome::queue_unreachable};
    const bool ethernet =
        nic.devices[static_cast<std::size_t>(qp.device)].ports()[qp.attributes.port - 1u].link == link_layer::ethernet;
    const auto status = decode_send(wqe, {qp.number, out.index, qp.is_datagram(), ethernet, qp.is_initiator()}, out);
    if (status == decode_status::too_long) return {syndrome::local_length, vendor_syndrome::local_length};
    if (status != decode_status::ok) {
        fmt::print(stderr, "softnic: queue pair {:#x}: WQE {} refused: {}\n", qp.number, out.index, to_string(status));
        return {syndrome::local_qp_operation, vendor_syndrome::malformed_wqe};
    }
    if (out.needs_response() && qp.attributes.max_rd_atomic == 0)
        return {syndrome::local_qp_operation, vendor_syndrome::local_operation};
    if (out.kind == operation::dump && !may_dump(nic, qp, out))
        return {syndrome::local_protection, vendor_syndrome::local_key};
    return injected_failure(nic, qp);
}

/// A WQE that reads or writes nothing still takes one PSN.
std::uint32_t count_packets(const send_request& request, std::uint32_t mtu) {
    if (request.is_local()) return 0;
    if (request.is_atomic()) return 1;
    return std::max(1u, (request.length + mtu - 1) / mtu);
}

}  // namespace

void on_doorbell(hca& nic, queue_pair& qp) {
    if (qp.options.send_wqebbs == 0 || (!qp.sends_packets() && qp.state != qp_state::error)) return;
    std::uint32_t record = 0;
    auto& requester = qp.requester;
    if (!qp.options.doorbell_record.load32(MLX5_SND_DBR * sizeof record, record)) {
        if (qp.state != qp_state::error) completions::fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
        return;
    }
    const std::uint16_t before = requester.produced;
    requester.produced = static_cast<std::uint16_t>(be32toh(record));
    if (requester.produced == before) return;
    requester.rang_ns = nic.wire_now;
    nic.schedule(qp);
    if (static_cast<std::uint16_t>(requester.produced - requester.consumed) > qp.options.send_wqebbs) {
        fmt::print(stderr, "softnic: queue pair {:#x}: doorbell for more WQEs than the ring holds\n", qp.number);
        requester.consumed = requester.produced;
        if (qp.state != qp_state::error) completions::fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
        return;
    }
    if (nic.config.strict && qp.state != qp_state::error) remember_wqes(nic, qp, before);
}

bool fetch(hca& nic, queue_pair& qp) {
    auto& requester = qp.requester;
    if (requester.consumed == requester.produced || qp.state != qp_state::ready_to_send) return false;
    if (requester.newest - requester.oldest >= requester_state::ring || nic.now < requester.fetch_after) {
        requester.held = true;
        return false;
    }
    requester.fetch_after = 0;
    if (nic.fault(qp, packet_kind::send, fault_action::qp_error) != nullptr) {
        completions::fail_queue_pair(nic, qp, IBV_EVENT_QP_FATAL);
        return true;
    }
    wqe_buffer buffer;
    const auto wqe = read_wqe(qp, requester.consumed, buffer);
    flight& next = requester.at(requester.newest);
    next.request.index = requester.consumed;
    next.failed = decode(nic, qp, wqe, next.request);
    if (nic.config.strict && changed_since_doorbell(qp, requester.consumed, wqe)) {
        ++nic.count.late_wqes;
        fmt::print(stderr, "softnic: queue pair {:#x}: WQE {} was written after its doorbell\n", qp.number,
                   next.request.index);
        next.failed = {syndrome::local_qp_operation, vendor_syndrome::late_wqe};
    }
    next.first_psn = requester.next_psn;
    next.packets = next.failed ? 1 : count_packets(next.request, qp.mtu_bytes());
    next.received = 0;
    next.message = ++nic.messages;
    requester.next_psn = psn::add(requester.next_psn, next.packets);
    requester.consumed = static_cast<std::uint16_t>(requester.consumed + next.request.wqebbs);
    ++requester.newest;
    ++nic.count.wqes;
    if (nic.log.on()) {
        nic.say(qp, "wqe", "{} opcode {:#04x} len {} psn {}+{}{}", next.request.index, next.request.opcode,
                next.request.length, next.first_psn, next.packets, next.failed ? " FAILED" : "");
    }
    return true;
}

}  // namespace accel::softnic::requester
