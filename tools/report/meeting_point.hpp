// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace accel::report {

/// Clients of a load come here when they are ready, go on together, and come again (to another one) when they are done.
class meeting_point {
  public:
    void come() {
        const std::lock_guard lock(mutex_);
        ++here_;
        changed_.notify_all();
    }
    /// Everyone has come, or `patience` has passed.
    [[nodiscard]] bool wait_for(std::uint32_t all, std::chrono::nanoseconds patience) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [&] { return here_ >= all; });
    }
    /// `when`: not 0.
    void start(std::chrono::nanoseconds when) {
        const std::lock_guard lock(mutex_);
        started_ = when;
        changed_.notify_all();
    }
    /// Ends at the latest when a client that connects has failed or succeeded, which has a deadline.
    [[nodiscard]] std::chrono::nanoseconds wait_for_start() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return started_ != std::chrono::nanoseconds{}; });
        return started_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint32_t here_ = 0;
    std::chrono::nanoseconds started_{};
};

}  // namespace accel::report
