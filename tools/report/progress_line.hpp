// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace accel::report {

/// A line on standard error that is written over and taken away at the end; nothing unless that is a terminal.
class progress_line {
  public:
    progress_line() noexcept;
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;
    ~progress_line();

    [[nodiscard]] bool shown() const noexcept { return on_terminal_; }
    void show(const std::string& text);

  private:
    bool on_terminal_;
    bool written_ = false;
};

}  // namespace accel::report
