// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace accel::report {

/// Another program, whose standard output is read line by line. Killed with its owner; owner; move-only.
class child_process {
  public:
    /// `arguments[0]` is the path of the program. Its standard error is ours.
    [[nodiscard]] static result<child_process> start(const std::vector<std::string>& arguments);
    child_process(child_process&& other) noexcept;
    child_process& operator=(child_process&& other) noexcept;
    ~child_process();

    [[nodiscard]] pid_t id() const noexcept { return id_; }
    /// The next line without its end; nothing at the end of the output or after `timeout`.
    [[nodiscard]] std::optional<std::string> read_line(std::chrono::milliseconds timeout);
    /// Waits for a line that starts with `prefix` and returns what follows it.
    [[nodiscard]] std::optional<std::string> wait_for(std::string_view prefix, std::chrono::milliseconds timeout);
    /// Waits for its end: the exit status, or 128 + signal; nothing after `timeout`.
    [[nodiscard]] std::optional<int> wait(std::chrono::milliseconds timeout);
    /// Asks it to end (SIGTERM), kills it after `patience`. As `wait`.
    int stop(std::chrono::milliseconds patience);

  private:
    child_process(pid_t id, int output) noexcept : id_(id), output_(output) {}
    void reset() noexcept;

    pid_t id_ = -1;  ///< -1: none, or its end has been seen
    int output_ = -1;
    int exit_status_ = 0;
    std::string unread_;
};

/// Path of a program beside the running one ("digits_server"); of the running one itself for an empty name.
[[nodiscard]] std::string program_path(std::string_view name = {});

}  // namespace accel::report
