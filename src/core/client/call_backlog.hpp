// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/client/channel_slots.hpp"

#include <cstdint>
#include <vector>

namespace accel::core {

/// Calls that the link had no room for when they were submitted. A device on a lossy network learns late what
/// has arrived. The calls wait here, within their deadlines, and leave in their order.
class call_backlog {
  public:
    explicit call_backlog(std::uint32_t slots) { waiting_.reserve(slots); }

    [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
    void push(const outgoing& message) noexcept { waiting_.push_back(message); }  // within reserved capacity
    /// Hands over what the link takes. A failure of the link; `ok` also while it has no room.
    [[nodiscard]] status send(link& path, std::uint32_t epoch, channel_slots& slots) noexcept {
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
    /// The message of this slot leaves without its payload, and with nothing that was lent for it.
    void empty_out(std::uint32_t slot) noexcept {
        for (outgoing& each : waiting_)
            if (each.slot == slot) each = {slot, {}, nullptr, {}};
    }
    void clear() noexcept { waiting_.clear(); }
    void remove(std::uint32_t slot) noexcept {
        std::erase_if(waiting_, [slot](const outgoing& each) { return each.slot == slot; });
    }

  private:
    std::vector<outgoing> waiting_;  ///< oldest first
};

}  // namespace accel::core
