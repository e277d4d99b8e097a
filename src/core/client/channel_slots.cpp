// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_slots.hpp"

namespace accel::core {

channel_slots::channel_slots(std::uint32_t count) : count_(count), slots_(count), free_(count), done_(count) {
    for (std::uint32_t i = count; i-- > 0;) {
        slots_[i].content.id.slot = i;
        put_free(slots_[i]);
    }
}

void channel_slots::take_done(channel_slot& slot) noexcept {
    // Rotates the ring once, leaving out this one: the order of the others stays.
    for (std::uint32_t left = done_count_; left > 0; --left) {
        channel_slot* oldest = take_done();
        if (oldest != &slot) push_done(*oldest);
    }
    slot.state = slot_state::taken;
}

}  // namespace accel::core
