// SPDX-License-Identifier: Apache-2.0
#include "core/client/call_backlog.hpp"

namespace accel::core {

status call_backlog::send(link& path, std::uint32_t epoch, channel_slots& slots) noexcept {
    while (!waiting_.empty()) {
        const outgoing& oldest = waiting_.front();
        const status sent = path.deliver(oldest);
        if (sent == status::again) break;
        if (sent != status::ok) return sent;
        slots[oldest.slot].set_delivered(oldest, epoch);
        waiting_.erase(waiting_.begin());
    }
    return status::ok;
}

void call_backlog::remove(std::uint32_t slot) noexcept {
    std::erase_if(waiting_, [slot](const outgoing& each) { return each.slot == slot; });
}

}  // namespace accel::core
