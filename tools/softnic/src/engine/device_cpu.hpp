// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

/// What the emulation costs a process, apart from the program's own work.
namespace accel::softnic {

/// The calling thread is one of the device's own from now on, until the process ends. Of more than 32 some are left
/// out.
void count_as_device_thread();
/// CPU time of the device's own threads so far, in nanoseconds. Any thread.
[[nodiscard]] std::uint64_t device_threads_cpu_ns();

/// Time in which the program's own calls did the device's work. Counted in cycles of the processor's clock, because it
/// is read twice in each such call. One thread at a time adds; any may read.
class helped_time {
  public:
    helped_time();

    [[nodiscard]] static std::uint64_t cycles();
    void add(std::uint64_t taken) {
        total_.store(total_.load(std::memory_order_relaxed) + taken, std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t nanoseconds() const;

  private:
    std::uint64_t first_cycles_;
    std::uint64_t first_ns_;
    std::atomic<std::uint64_t> total_{0};
};

}  // namespace accel::softnic
