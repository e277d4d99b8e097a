// SPDX-License-Identifier: Apache-2.0
#include "digits/demo_progress.hpp"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::examples::digits {
namespace {
constexpr std::string_view clear_line = "\r\033[K";
}

demo_progress::demo_progress() noexcept : terminal_(isatty(STDERR_FILENO) == 1) {}

void demo_progress::update(std::string_view what, std::uint64_t done, std::uint64_t all) {
    if (!terminal_) return;
    fmt::print(stderr, "{}{}: {} of {}", clear_line, what, done, all);
    std::fflush(stderr);
}

void demo_progress::finish(std::string_view sentence) {
    fmt::print(stderr, "{}{}\n", terminal_ ? clear_line : std::string_view{}, sentence);
}

}  // namespace accel::examples::digits
