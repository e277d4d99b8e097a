// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <mutex>
#include <string_view>

namespace accel::softnic::gpu {

/// Knows whether other processes copy to and from the same GPU under softnic. A GPU runs the kernels of one
/// process at a time, so a copy kernel that waits for work would keep theirs out. By a lock on a file, which
/// goes with its process: so a process has one of these for each GPU, whose workers share it.
class neighbours {
  public:
    /// `name`: of the GPU, the same in all processes. If the file cannot be had, there are none.
    explicit neighbours(std::string_view name);
    ~neighbours();
    neighbours(const neighbours&) = delete;
    neighbours& operator=(const neighbours&) = delete;

    /// As of a few milliseconds ago. By any thread.
    [[nodiscard]] bool any();

  private:
    int file_ = -1;
    long place_ = 0;
    std::mutex mutex_;
    bool seen_ = false;
    std::chrono::steady_clock::time_point look_at_{};
};

}  // namespace accel::softnic::gpu
