// SPDX-License-Identifier: Apache-2.0
#include "fabric/fabric.hpp"

#include <bit>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
    return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

// ---- queue pair numbers

std::optional<std::uint32_t> fabric::claim_qpn(int device) {
    auto& next = header_->next_qpn[static_cast<std::size_t>(device)];
    auto& owners = header_->owners[static_cast<std::size_t>(device)];
    for (std::uint32_t attempt = 0; attempt < qpn_space; ++attempt) {
        const std::uint32_t qpn = next.fetch_add(1, std::memory_order_relaxed) % qpn_space;
        if (qpn < first_qpn) continue;
        std::uint8_t nobody = 0;
        if (owners[qpn].compare_exchange_strong(nobody, static_cast<std::uint8_t>(node_ + 1))) return qpn;
    }
    return std::nullopt;
}

void fabric::release_qpn(int device, std::uint32_t qpn) {
    header_->owners[static_cast<std::size_t>(device)][qpn % qpn_space].store(0, std::memory_order_release);
}

int fabric::owner_of(int device, std::uint32_t qpn) const {
    if (device < 0 || device >= max_devices || qpn >= qpn_space) return -1;
    return header_->owners[static_cast<std::size_t>(device)][qpn].load(std::memory_order_acquire) - 1;
}

// ---- packets

packet* fabric::reserve(int to, std::uint32_t spare) {
    packet_ring* ring = outbound(to);
    if (ring == nullptr) return nullptr;
    const std::uint32_t head = ring->head.load(std::memory_order_relaxed);
    const std::uint32_t slots = slots_to(to);
    if (head - ring->tail.load(std::memory_order_acquire) + spare >= slots) return nullptr;
    return &ring->slots[head % slots];
}

void fabric::commit(int to) {
    packet_ring* ring = outbound_[static_cast<std::size_t>(to)];
    ring->head.store(ring->head.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (to == node_) return;  // our own loop looks at the ring anyway
    node_record& receiver = record(to);
    receiver.arrivals.fetch_add(1, std::memory_order_seq_cst);
    if (receiver.sleeping.load(std::memory_order_seq_cst) != 0) futex(receiver.arrivals, FUTEX_WAKE, 1, nullptr);
}

const packet* fabric::receive() {
    const std::uint64_t senders = record(node_).senders.load(std::memory_order_acquire);
    const std::uint64_t not_yet_asked = ~std::uint64_t{0} << next_sender_;
    for (std::uint64_t round : {senders & not_yet_asked, senders & ~not_yet_asked}) {
        for (; round != 0; round &= round - 1) {
            const int from = std::countr_zero(round);
            packet_ring* ring = inbound(from);
            if (ring == nullptr) continue;
            const std::uint32_t tail = ring->tail.load(std::memory_order_relaxed);
            if (ring->head.load(std::memory_order_acquire) == tail) continue;
            receiving_from_ = from;
            return &ring->slots[tail % slots_to(from)];
        }
    }
    return nullptr;
}

void fabric::release() {
    packet_ring* ring = inbound_[static_cast<std::size_t>(receiving_from_)];
    ring->tail.store(ring->tail.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    next_sender_ = (receiving_from_ + 1) % max_nodes;
}

// ---- packets of a modelled link

inbox::entry* fabric::earliest() {
    inbox::entry* found = nullptr;
    for (std::uint64_t round = record(node_).senders.load(std::memory_order_acquire); round != 0; round &= round - 1) {
        const int from = std::countr_zero(round);
        packet_ring* ring = inbound(from);
        if (ring == nullptr) continue;
        auto& box = inboxes_[static_cast<std::size_t>(from)];
        if (box == nullptr) box = std::make_unique<inbox>(ring->tail.load(std::memory_order_relaxed), from);
        box->take_in(*ring, slots_to(from));
        inbox::entry* const candidate = box->earliest();
        if (candidate == nullptr || (found != nullptr && found->due_ns <= candidate->due_ns)) continue;
        found = candidate;
        receiving_from_ = from;
    }
    return found;
}

void fabric::release_waiting(const inbox::entry& which, bool at_edge) {
    inbound_[which.sender]->tail.store(inboxes_[which.sender]->release(which, at_edge), std::memory_order_release);
}

std::uint32_t fabric::count_nodes() const {
    std::uint32_t count = 0;
    for (const node_record& each : header_->nodes)
        if (each.state.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(node_state::free)) ++count;
    return count;
}

std::uint32_t fabric::arrivals() const {
    return record(node_).arrivals.load(std::memory_order_acquire);
}

void fabric::wait_for_arrival(std::uint32_t seen, std::uint64_t nanoseconds) {
    node_record& self = record(node_);
    const timespec timeout{static_cast<time_t>(nanoseconds / 1'000'000'000),
                           static_cast<long>(nanoseconds % 1'000'000'000)};
    self.sleeping.store(1, std::memory_order_seq_cst);
    if (self.arrivals.load(std::memory_order_seq_cst) == seen) futex(self.arrivals, FUTEX_WAIT, seen, &timeout);
    self.sleeping.store(0, std::memory_order_seq_cst);
}

void fabric::wake() {
    node_record& self = record(node_);
    self.arrivals.fetch_add(1, std::memory_order_seq_cst);
    futex(self.arrivals, FUTEX_WAKE, 1, nullptr);
}

packet_ring* fabric::outbound(int to) {
    if (to < 0 || to >= max_nodes) return nullptr;
    auto& ring = outbound_[static_cast<std::size_t>(to)];
    if (ring == nullptr) ring = map_ring(node_, to);
    if (ring != nullptr) {
        // Again for every packet: the place may have a new owner, who starts with no senders known.
        const std::uint64_t me = std::uint64_t{1} << node_;
        if ((record(to).senders.load(std::memory_order_relaxed) & me) == 0) record(to).senders.fetch_or(me);
    }
    return ring;
}

packet_ring* fabric::inbound(int from) {
    auto& ring = inbound_[static_cast<std::size_t>(from)];
    if (ring == nullptr) ring = map_ring(from, node_);
    return ring;
}

// ---- the dead

void fabric::reap_dead_nodes() {
    for (int node = 0; node < max_nodes; ++node) {
        const auto state = static_cast<node_state>(record(node).state.load(std::memory_order_acquire));
        if (node != node_ && state != node_state::free && is_dead(node)) reap(node);
    }
}

/// Only who holds the place's lock may reap, so a reaper that dies is itself replaced.
void fabric::reap(int node) {
    if (!lock_place(node)) return;
    clear_place(node);
    unlock_place(node);
}

void fabric::clear_place(int node) {
    record(node).state.store(static_cast<std::uint32_t>(node_state::being_reaped), std::memory_order_release);
    const auto held = static_cast<std::uint8_t>(node + 1);
    for (auto& device : header_->owners) {
        for (auto& owner : device) {
            std::uint8_t dead = held;
            if (owner.load(std::memory_order_relaxed) == held) owner.compare_exchange_strong(dead, 0);
        }
    }
    record(node).state.store(static_cast<std::uint32_t>(node_state::free), std::memory_order_release);
}

}  // namespace accel::softnic
