// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/event_signal.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

/// Notices that a GPU has failed while nobody waits for it: a kernel that stays on the GPU tells nobody of its fault.
/// Nothing here knows CUDA.
namespace accel::core {

/// The result of one look at a GPU.
enum class gpu_sight : std::uint8_t {
    good,     ///< it works, or is busy
    refused,  ///< the look has failed in a way that may pass
    lost,     ///< every further call in this process fails too
};

/// Decides what looks at a GPU mean.
class failure_judge {
  public:
    /// Looks that may be refused one after another: half a second of them.
    static constexpr int patience = 5;
    /// True: the GPU has failed for good.
    [[nodiscard]] bool judge(gpu_sight seen) noexcept {
        refusals_ = seen == gpu_sight::refused ? refusals_ + 1 : 0;
        return seen == gpu_sight::lost || refusals_ >= patience;
    }

  private:
    int refusals_ = 0;
};

/// A thread that looks at a GPU ten times a second until it has failed. A look may block for as long as the
/// application's own calls hold up the driver; nothing else waits for it, except the end of the watch.
class failure_watch {
  public:
    static constexpr std::chrono::milliseconds look_interval{100};

    /// Sets `failed`, which outlives the watch, once the GPU has failed. Throws what std::thread throws.
    failure_watch(std::function<gpu_sight()> look, std::atomic<bool>& failed, nanoseconds interval = look_interval);
    /// Waits for the look under way.
    ~failure_watch();
    failure_watch(const failure_watch&) = delete;
    failure_watch& operator=(const failure_watch&) = delete;

  private:
    void run();

    std::function<gpu_sight()> look_;
    std::atomic<bool>& failed_;
    nanoseconds interval_;
    wake_signal ended_;
    std::atomic<bool> ending_{false};
    std::thread thread_;
};

}  // namespace accel::core
