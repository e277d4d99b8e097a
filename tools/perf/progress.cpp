// SPDX-License-Identifier: Apache-2.0
#include "perf/progress.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace accel::perf {
namespace {

constexpr std::size_t longest_place = 40;

}  // namespace

std::string progress_text(const std::string& uri, const load& what, std::uint64_t answers,
                          std::chrono::nanoseconds since) {
    const std::string place = uri.substr(0, std::min(uri.find('?'), longest_place));
    const double seconds = std::chrono::duration<double>(since).count();
    const double rate = seconds > 0 ? static_cast<double>(answers) / seconds : 0;
    const std::string far = what.duration ? fmt::format("{:.0f} of {:.0f} s, {} calls", seconds,
                                                        std::chrono::duration<double>(*what.duration).count(), answers)
                                          : fmt::format("{} of {} calls", answers, what.count);
    return fmt::format("{}: {}, {:.0f}/s", place, far, rate);
}

}  // namespace accel::perf
