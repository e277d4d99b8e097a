#pragma once

#include <algorithm>
#include <cstdint>

namespace accel::verbs {

/// Which work requests of a send queue are still the device's. Most are posted without asking for a
/// completion; one that has asked completes all before it (InfiniBand specification, section 10.8.5). One
/// asks often enough that the queue never fills with requests of which nobody will hear, and no more often:
/// each such completion costs its receiver a look, and wakes it if it sleeps.
class send_ledger {
  public:
    /// `reserve` requests, but at most three quarters of the queue, find room without a completion that was
    /// not asked for. No chain is longer than that.
    send_ledger(std::uint32_t depth, std::uint32_t reserve) noexcept
        : depth_(depth), signal_every_(std::max({depth - std::min(reserve, depth), depth / 4, 1U})) {}

    [[nodiscard]] bool has_room(std::uint32_t count) const noexcept { return depth_ - in_queue() >= count; }
    /// True if the last of the next `count` requests has to ask for its completion.
    [[nodiscard]] bool signal_due(std::uint32_t count) const noexcept {
        return posted_ + count - signalled_ >= signal_every_;
    }
    /// The number of the last of the next `count` requests; what its completion hands to `complete`.
    [[nodiscard]] std::uint32_t number_of_last(std::uint32_t count) const noexcept { return posted_ + count; }
    void post(std::uint32_t count, bool signalled) noexcept {
        posted_ += count;
        if (signalled) signalled_ = posted_;
    }
    /// All requests up to `number` have completed.
    void complete(std::uint32_t number) noexcept { completed_ = number; }

    [[nodiscard]] std::uint32_t in_queue() const noexcept { return posted_ - completed_; }
    [[nodiscard]] bool idle() const noexcept { return posted_ == completed_; }
    /// Everything posted is covered by a completion that was asked for.
    [[nodiscard]] bool all_signalled() const noexcept { return signalled_ == posted_; }

  private:
    std::uint32_t depth_;
    std::uint32_t signal_every_;
    // Free-running counters, compared by difference.
    std::uint32_t posted_ = 0;
    std::uint32_t signalled_ = 0;
    std::uint32_t completed_ = 0;
};

}  // namespace accel::verbs
