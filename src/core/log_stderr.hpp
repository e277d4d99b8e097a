// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/log.hpp>

#include <chrono>
#include <memory>
#include <string_view>

namespace accel::core {

/// Standard error as the log's thread uses it. One thread.
class log_stderr {
  public:
    log_stderr();
    ~log_stderr();
    log_stderr(const log_stderr&) = delete;
    log_stderr& operator=(const log_stderr&) = delete;

    /// The line with time and level in front. Valid until the next call.
    [[nodiscard]] std::string_view format(std::chrono::system_clock::time_point at, log_level level,
                                          std::string_view text);

  private:
    struct pattern;
    std::unique_ptr<pattern> pattern_;
};

/// Writes as much of `rest` as `fd` takes, and removes it; waits up to 50 ms. True: nothing is left, or `fd`
/// is closed or broken. Does not set O_NONBLOCK, which every process that shares `fd` would get. So the write
/// may block if another writer fills the pipe in between.
[[nodiscard]] bool write_some(int fd, std::string_view& rest) noexcept;

}  // namespace accel::core
