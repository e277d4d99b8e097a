// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "kernels/proxy/proxy_thread.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace accel::gpu {

/// The threads by which a context's services and channels share proxies. There are as many as were asked for at most,
/// and no more than there are services; each serves as many as every other, give or take one. A
/// thread that is stuck in a driver does not count. Thread-safe.
class proxy_threads {
  public:
    /// Rings whose round takes longer than `longest_move` stay with their thread.
    explicit proxy_threads(const proxy_pace& pace = {},
                           core::nanoseconds longest_move = std::chrono::milliseconds{100}) noexcept
        : pace_(pace), longest_move_(longest_move) {}
    /// All rings have been removed.
    ~proxy_threads() = default;
    proxy_threads(const proxy_threads&) = delete;
    proxy_threads& operator=(const proxy_threads&) = delete;

    /// Serves `rings` until `remove`, by one of `threads` threads (1 or more); of all that ask, the largest number
    /// holds. Others may change their threads now. `system_error`: no thread could be started.
    [[nodiscard]] result<void> add(served_rings& rings, std::uint32_t threads);
    /// When it returns true, no thread touches `rings` any more. False: one is stuck in a device's driver, and may
    /// touch them later. Waits for one round, `bound` at most, and as long for each that changes its thread. Nobody
    /// else waits for a thread that is stuck, and it gets no other service.
    [[nodiscard]] bool remove(const served_rings& rings, core::nanoseconds bound = proxy_thread::max_round) noexcept;
    /// Processor time that threads have taken while they served `rings`, whomever else they served. 0: never added.
    [[nodiscard]] core::nanoseconds cpu_time(const served_rings& rings) const;
    [[nodiscard]] std::size_t size() const;

  private:
    /// One service's rings, and who serves them.
    struct seat {
        served_rings* rings;
        std::uint32_t threads;  ///< asked for
        proxy_thread* by = nullptr;
        core::nanoseconds before{};  ///< processor time of earlier threads
        core::nanoseconds since{};   ///< of this thread, when it began to serve
        bool leaves = false;         ///< somebody removes it, or could not: its thread is stuck with it

        [[nodiscard]] core::nanoseconds cpu_time() const;
    };
    [[nodiscard]] std::size_t threads_wanted() const noexcept;
    [[nodiscard]] bool is_sound(const proxy_thread& which) const noexcept;
    [[nodiscard]] std::size_t sound_threads() const noexcept;
    [[nodiscard]] proxy_thread& least_busy(const proxy_thread* except = nullptr) const noexcept;
    [[nodiscard]] bool move(seat& which, proxy_thread& to) noexcept;
    [[nodiscard]] bool spread() noexcept;
    void end_spare() noexcept;

    const proxy_pace pace_;
    const core::nanoseconds longest_move_;
    mutable std::mutex mutex_;  ///< of what follows; met when services come or go
    std::vector<std::unique_ptr<proxy_thread>> threads_;
    std::vector<seat> seats_;
};

/// How a service is served by proxy: by a thread of its own, or by one of those that its context's services share.
struct proxy_sharing {
    std::shared_ptr<proxy_threads> threads{};
    std::uint32_t count = 0;  ///< 0: a thread of its own
};

}  // namespace accel::gpu
