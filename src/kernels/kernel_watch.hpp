// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/event_signal.hpp"
#include "core/log.hpp"
#include "kernels/kernel_host.hpp"
#include "staging/accelerator.hpp"

#include <accel_transport/detail/mlx5/fences.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

/// The work of the host's thread of a GPU-resident service or channel while kernels run: it gives them the
/// time, and reads their reports now and then.
namespace accel::gpu {

/// A queue pair may have failed because the adapter no longer reaches the memory of a GPU that has failed: who watches
/// the GPU (staging/failure_watch.hpp) knows a little later.
class failure_blame {
  public:
    /// A failure is there. True once it would be known that the GPU is to blame. `gpu` may be null.
    [[nodiscard]] bool settled(const core::accelerator_device* gpu) noexcept {
        if (gpu == nullptr || !gpu->alive()) return true;
        if (since_ == core::nanoseconds{}) since_ = core::now();
        return core::now() - since_ >= patience;
    }

  private:
    /// Two looks at the GPU, and some.
    static constexpr std::chrono::milliseconds patience{250};
    core::nanoseconds since_{};
};

/// Kernels have a clock of their own. This one tells them which deadlines have passed.
class kernel_watch {
  public:
    /// `orders` holds the clock that kernels read, `report` the last tick that they have read.
    template <class Orders, class Report>
    void tick(Orders& orders, const Report& report, core::nanoseconds offset) noexcept {
        const core::nanoseconds now = core::now();
        if (now < next_tick_) return;
        const bool heard = mlx5::load_whole(&report.clock_seen) != 0;
        next_tick_ = now + (heard ? core::nanoseconds{tick_interval} : core::nanoseconds{first_interval});
        mlx5::store_whole(&orders.clock_ns, (core::now() + offset).count());
        mlx5::store_flag(&orders.clock_tick, orders.clock_tick + 1);
    }
    /// True: kernels compiled with another layout version have refused to run. Logs that once. Any thread.
    template <class Report>
    bool has_refused(const Report& report) noexcept {
        const std::uint32_t version = mlx5::load_whole(&report.kernel_version);
        if (version == 0) return false;
        if (!refusal_logged_.exchange(true))
            core::limited_log().error("{}", other_version("a kernel", version).message);
        return true;
    }
    /// Until something wakes it, the next tick, the next look or `until`. True: `other_fd` is readable.
    [[nodiscard]] bool sleep(int wake_fd, int other_fd, core::nanoseconds until) const noexcept {
        const core::nanoseconds now = core::now();
        std::array<pollfd, 2> fds{{{wake_fd, POLLIN, 0}, {other_fd, POLLIN, 0}}};
        core::sleep_on(fds, std::min({until, now + look_interval, std::max(next_tick_, now)}));
        return (fds[1].revents & POLLIN) != 0;
    }

  private:
    /// How long a failure that kernels have found may go unnoticed.
    static constexpr std::chrono::milliseconds look_interval{50};
    /// How often kernels are given the time; more often until they have read it once.
    static constexpr std::chrono::seconds tick_interval{1};
    static constexpr std::chrono::milliseconds first_interval{2};
    core::nanoseconds next_tick_{};
    std::atomic<bool> refusal_logged_{false};
};

}  // namespace accel::gpu
