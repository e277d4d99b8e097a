// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::core {

/// Cancelled calls of one session, on their way from its channel to the control plane's thread. One place for each
/// slot, so that it is never full; a later call replaces an earlier one, which its answer has ended. Lock-free.
class cancel_outbox {
  public:
    explicit cancel_outbox(std::uint32_t slots) : generations_(slots) {}

    /// The channel. True: the thread has to be woken.
    [[nodiscard]] bool add(call_id cancelled) noexcept {
        if (cancelled.slot >= generations_.size()) return false;
        generations_[cancelled.slot].store(cancelled.generation, std::memory_order_release);
        return !pending_.exchange(true, std::memory_order_seq_cst);
    }
    /// The thread.
    [[nodiscard]] bool pending() const noexcept { return pending_.load(std::memory_order_seq_cst); }
    /// Up to `most` of them. More may be `pending`.
    [[nodiscard]] std::vector<call_id> take(std::size_t most) {
        std::vector<call_id> taken;
        taken.reserve(std::min(most, generations_.size()));
        pending_.store(false, std::memory_order_seq_cst);
        for (std::uint32_t slot = 0; slot < generations_.size(); ++slot) {
            if (generations_[slot].load(std::memory_order_seq_cst) == 0) continue;
            if (taken.size() == most) {
                pending_.store(true, std::memory_order_seq_cst);
                break;
            }
            taken.push_back({slot, generations_[slot].exchange(0, std::memory_order_acq_rel)});
        }
        return taken;
    }
    /// Those that could not be told, unless their slots have newer ones.
    void put_back(std::span<const call_id> untold) noexcept {
        for (const call_id& each : untold) {
            std::uint32_t none = 0;
            generations_[each.slot].compare_exchange_strong(none, each.generation, std::memory_order_release);
        }
        pending_.store(true, std::memory_order_seq_cst);
    }

  private:
    std::vector<std::atomic<std::uint32_t>> generations_;
    std::atomic<bool> pending_{false};
};

}  // namespace accel::core
