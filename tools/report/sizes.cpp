// SPDX-License-Identifier: Apache-2.0
#include "report/sizes.hpp"

#include <cstdint>

#include <fmt/format.h>

namespace accel::report {

std::string check_size(const std::string& text) {
    const auto read = parse_size(text);
    return read ? std::string{} : read.error().message;
}

result<std::vector<std::size_t>> parse_sizes(std::string_view text) {
    std::vector<std::size_t> sizes;
    while (true) {
        const std::size_t comma = text.find(',');
        const auto size = parse_size(text.substr(0, comma));
        if (!size) return size.error();
        sizes.push_back(size.value());
        if (comma == std::string_view::npos) return sizes;
        text.remove_prefix(comma + 1);
    }
}

std::string check_sizes(const std::string& text) {
    const auto read = parse_sizes(text);
    return read ? std::string{} : read.error().message;
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
