// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/stop_notifier.hpp"

#include <accel_transport/completion.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

namespace accel::core {

/// The calls of one session that nobody waits for any more. The control plane writes it, or the client itself where
/// it shares the process; exchanges read it. A generation is written and compared, so that a cancel may come before
/// its request or after its answer, and the data path has nothing to clear. Thread-safe.
class cancel_board {
  public:
    cancel_board(std::uint32_t slots, std::shared_ptr<stop_notifier> notifier)
        : words_(slots), notifier_(std::move(notifier)) {}

    /// This call was cancelled. A slot that the session does not have is ignored. Neither locks nor allocates.
    void cancel(call_id which) noexcept {
        if (which.slot >= words_.size()) return;
        word& at = words_[which.slot];
        at.cancelled.store(which.generation, std::memory_order_seq_cst);
        any_.store(true, std::memory_order_seq_cst);
        if (at.watched.load(std::memory_order_seq_cst) == which.generation) notifier_->wake();
    }
    /// The client has left.
    void end() noexcept {
        if (ended_.exchange(true, std::memory_order_seq_cst)) return;
        any_.store(true, std::memory_order_seq_cst);
        const auto is_watched = [](const word& each) { return each.watched.load(std::memory_order_seq_cst) != 0; };
        if (std::ranges::any_of(words_, is_watched)) notifier_->wake();
    }

    /// False: no call of this session was ever cancelled, and its client is there.
    [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
    /// The client has left, or was made to.
    [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }
    /// Nobody waits for the answer of this call.
    [[nodiscard]] bool cancelled(call_id which) const noexcept {
        if (!any_.load(std::memory_order_seq_cst)) return false;
        const bool named = which.slot < words_.size() &&
                           words_[which.slot].cancelled.load(std::memory_order_seq_cst) == which.generation;
        return named || ended_.load(std::memory_order_seq_cst);
    }

    /// Stops when that is so, or the deadline has passed; until `forget`.
    [[nodiscard]] std::stop_token watch(call_id which, nanoseconds deadline) {
        std::stop_source source = notifier_->watch(*this, which, deadline);
        words_[which.slot].watched.store(which.generation, std::memory_order_seq_cst);
        if (cancelled(which)) source.request_stop();
        return source.get_token();
    }
    void forget(std::uint32_t slot) noexcept {
        words_[slot].watched.store(0, std::memory_order_relaxed);
        notifier_->forget(*this, slot);
    }

  private:
    /// Generations of one slot; 0: none.
    struct word {
        std::atomic<std::uint32_t> cancelled{0};
        std::atomic<std::uint32_t> watched{0};
    };

    std::vector<word> words_;
    std::atomic<bool> any_{false};
    std::atomic<bool> ended_{false};
    const std::shared_ptr<stop_notifier> notifier_;
};

}  // namespace accel::core
