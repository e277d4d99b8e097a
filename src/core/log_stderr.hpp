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

/// Writes what `fd` takes of `rest` and removes it there; waits up to 50 ms for `fd` to take any. True:
/// nothing is left to do, also if `fd` is closed or broken. `fd` stays as it is: O_NONBLOCK would be set for
/// every process that shares it. So the write may block after all if another writer fills the pipe in
/// between.
[[nodiscard]] bool write_some(int fd, std::string_view& rest) noexcept;

}  // namespace accel::core
