// SPDX-License-Identifier: Apache-2.0
#include "fabric/inbox.hpp"

namespace accel::softnic {

void inbox::take_in(const packet_ring& ring, std::uint32_t slots) {
    const std::uint32_t head = ring.head.load(std::memory_order_acquire);
    for (; next_ != head && next_ - tail_ < slots; ++next_) {
        const packet_header& header = ring.slots[next_ % slots].header;
        const std::size_t port = header.from.device * 2u + (header.from.port & 1u);
        lane& to = lanes_[header.express != 0 ? express_lane : port % ports];
        to.entries[(to.first + to.count++) % ring_slots] = {header.arrives_ns, next_, false};
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

std::uint32_t inbox::release() {
    lane& from = lanes_[chosen_];
    done_.set(from.entries[from.first].position % ring_slots);
    from.first = (from.first + 1) % ring_slots;
    --from.count;
    for (; tail_ != next_ && done_.test(tail_ % ring_slots); ++tail_) done_.reset(tail_ % ring_slots);
    return tail_;
}

}  // namespace accel::softnic
