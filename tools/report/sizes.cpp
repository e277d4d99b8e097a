// SPDX-License-Identifier: Apache-2.0
#include "report/sizes.hpp"

#include <charconv>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

namespace accel::report {
namespace {

constexpr std::string_view suffixes = "KMG";

std::optional<unsigned> shift_of(std::string_view suffix) {
    if (suffix.empty()) return 0U;
    const std::size_t place = suffixes.find(suffix.front());
    const bool known = suffix.size() == 1 || suffix.substr(1) == "iB";
    if (!known || place == std::string_view::npos) return std::nullopt;
    return static_cast<unsigned>(10 * (place + 1));
}

}  // namespace

std::optional<std::size_t> parse_size(std::string_view text) {
    std::size_t number = 0;
    const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failure != std::errc{}) return std::nullopt;
    const auto shift = shift_of(text.substr(static_cast<std::size_t>(rest - text.data())));
    if (!shift || number > (std::numeric_limits<std::size_t>::max() >> *shift)) return std::nullopt;
    return number << *shift;
}

std::optional<std::vector<std::size_t>> parse_sizes(std::string_view text) {
    std::vector<std::size_t> sizes;
    while (true) {
        const std::size_t comma = text.find(',');
        const auto size = parse_size(text.substr(0, comma));
        if (!size) return std::nullopt;
        sizes.push_back(*size);
        if (comma == std::string_view::npos) return sizes;
        text.remove_prefix(comma + 1);
    }
}

std::string size_text(std::size_t bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB"};
    std::size_t unit = 0;
    auto value = static_cast<double>(bytes);
    while (value >= 1024 && unit < 3) {
        value /= 1024;
        ++unit;
    }
    const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
    return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, units[unit]);
}

}  // namespace accel::report
