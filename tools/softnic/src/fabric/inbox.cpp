// SPDX-License-Identifier: Apache-2.0
#include "fabric/inbox.hpp"

#include <utility>

namespace accel::softnic {

void inbox::take_in(const packet_ring& ring, std::uint32_t slots) {
    const std::uint32_t head = ring.head.load(std::memory_order_acquire);
    for (; next_ != head && next_ - tail_ < slots; ++next_) {
        const packet_header& header = ring.slots[next_ % slots].header;
        const std::size_t port = header.from.device * 2u + (header.from.port & 1u);
        const std::size_t at = header.express != 0 ? express_lane : port % ports;
        lane& to = lanes_[at];
        to.entries[(to.first + to.count++) % ring_slots] = {
            header.arrives_ns, next_, false, sender_, static_cast<std::uint8_t>(at), {}};
    }
}

inbox::entry* inbox::earliest() {
    entry* found = nullptr;
    for (std::size_t at = 0; at < lanes_.size(); ++at) {
        lane& each = lanes_[at];
        if (each.count == 0) continue;
        entry& candidate = each.entries[each.first];
        if (found != nullptr && found->due_ns <= candidate.due_ns) continue;
        found = &candidate;
        chosen_ = at;
    }
    return found;
}

inbox::entry inbox::take() {
    lane& from = lanes_[chosen_];
    entry taken = std::move(from.entries[from.first]);
    from.first = (from.first + 1) % ring_slots;
    --from.count;
    if (from.looked != 0) --from.looked;
    return taken;
}

std::uint32_t inbox::release(const entry& taken, bool at_edge) {
    lane& from = lanes_[taken.lane];
    if (from.passed_over && at_edge && !taken.placed.early) {
        from.looked = 0;
        from.passed_over = false;
    }
    done_.set(taken.position % ring_slots);
    for (; tail_ != next_ && done_.test(tail_ % ring_slots); ++tail_) done_.reset(tail_ % ring_slots);
    return tail_;
}

}  // namespace accel::softnic
