// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/load.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace accel::perf {

/// "tcp://…: 12,345 of 100,000 calls, 6172/s" for people who wait; without control characters.
[[nodiscard]] std::string progress_text(const std::string& uri, const load& what, std::uint64_t answers,
                                        std::chrono::nanoseconds since);

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

}  // namespace accel::perf
