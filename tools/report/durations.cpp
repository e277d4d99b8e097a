// SPDX-License-Identifier: Apache-2.0
#include "report/durations.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace accel::report {

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
    static constexpr std::array<std::pair<std::string_view, double>, 5> units{
        {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (failure != std::errc{} || !(number > 0)) return std::nullopt;
    const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    for (const auto& [name, factor] : units) {
        if (name != suffix) continue;
        const double ns = number * factor;
        if (ns < 1 || ns > 24 * 3600e9) return std::nullopt;
        return std::chrono::nanoseconds{static_cast<std::int64_t>(ns)};
    }
    return std::nullopt;
}

}  // namespace accel::report
