// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/device_cpu.hpp"
#include "engine/nic.hpp"

#include <atomic>
#include <cstdint>

namespace accel::softnic {

/// Makes a nic move, in the way its settings say. Lives as long as the process: the thread outlives static
/// destructors.
class runner {
  public:
    explicit runner(nic& driven);

    /// Starts the thread, unless the mode has none.
    void start();
    /// Called from inside the program's own calls: one round, unless somebody else is at it. Never blocks.
    void help();
    /// One round, waiting for the lock. What the C API and tests use.
    bool step();
    /// CPU time of the emulation in this process so far: of its threads, and of the program's in which they did its
    /// work.
    [[nodiscard]] std::uint64_t cpu_ns() const { return device_threads_cpu_ns() + helped_.nanoseconds(); }
    [[nodiscard]] poll_mode mode() const { return nic_.state.config.mode; }

  private:
    void run();
    void spin();
    void run_adaptive();
    [[nodiscard]] std::uint64_t clock();
    [[nodiscard]] std::uint64_t virtual_clock();
    [[nodiscard]] std::uint64_t longest_sleep();
    void give_way() const;
    void show_cpu_time();

    nic& nic_;
    std::atomic<std::uint64_t> virtual_time_ns_{1};
    std::uint64_t last_ns_ = 0;  ///< of the machine's clock, in the last round; under the device's lock
    std::uint64_t lost_ns_ = 0;  ///< for which the device did not run
    helped_time helped_;
    std::uint64_t show_at_ns_ = 0;  ///< when to, next; the device's thread's
};

/// True on a thread that is inside the device model: what it calls must not be intercepted again.
[[nodiscard]] bool inside_model();

/// Marks this thread as inside the model, and the lock as taken.
class model_guard {
  public:
    explicit model_guard(nic& target);
    ~model_guard();
    model_guard(const model_guard&) = delete;
    model_guard& operator=(const model_guard&) = delete;

  private:
    nic& nic_;
};

}  // namespace accel::softnic
