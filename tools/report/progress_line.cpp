// SPDX-License-Identifier: Apache-2.0
#include "report/progress_line.hpp"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::report {
namespace {

/// To the start of the line, and erase it (ECMA-48 EL).
constexpr const char* clear_line = "\r\033[K";

}  // namespace

progress_line::progress_line() noexcept : on_terminal_(::isatty(STDERR_FILENO) == 1) {}

progress_line::~progress_line() {
    if (written_) fmt::print(stderr, "{}", clear_line);
}

void progress_line::show(const std::string& text) {
    if (!on_terminal_) return;
    fmt::print(stderr, "{}{}", clear_line, text);
    std::fflush(stderr);
    written_ = true;
}

}  // namespace accel::report
