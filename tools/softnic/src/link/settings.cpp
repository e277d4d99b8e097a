// SPDX-License-Identifier: Apache-2.0
#include "link/settings.hpp"

#include <charconv>
#include <cmath>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

namespace accel::softnic {
namespace {

struct link_unit {
    std::string_view name;
    double factor;
};

constexpr link_unit link_rates[]{{"b/s", 1}, {"kb/s", 1e3}, {"Mb/s", 1e6}, {"Gb/s", 1e9}, {"Tb/s", 1e12}};
constexpr link_unit link_times[]{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}};

// Between them no time of a packet leaves the range of 64 bits.
constexpr double slowest_link = 1e4;
constexpr double fastest_link = 1e14;
constexpr double longest_delay_ns = 1e9;

[[noreturn]] void refuse_link(std::string_view text, std::string_view why) {
    throw std::invalid_argument(fmt::format("SOFTNIC_LINK: \"{}\" {}", text, why));
}

double parse_quantity(std::string_view text, std::span<const link_unit> units, std::string_view otherwise) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc{} || !(value >= 0) || std::isinf(value)) refuse_link(text, otherwise);
    const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
    for (const link_unit& each : units)
        if (each.name == name) return value * each.factor;
    refuse_link(text, otherwise);
}

}  // namespace

link_settings parse_link(std::string_view text) {
    const std::size_t comma = text.find(',');
    if (comma == std::string_view::npos) refuse_link(text, "is not RATE,DELAY, such as 25Gb/s,1us");
    const double rate =
        parse_quantity(text.substr(0, comma), link_rates,
                       "is not a valid rate: a number and b/s, kb/s, Mb/s, Gb/s or Tb/s, such as 25Gb/s");
    const double delay = parse_quantity(text.substr(comma + 1), link_times,
                                        "is not a valid delay: a number and ns, us or ms, such as "
                                        "1us");
    if (rate < slowest_link || rate > fastest_link) refuse_link(text, "has a rate outside 10kb/s to 100Tb/s");
    if (delay > longest_delay_ns) refuse_link(text, "has a delay of more than 1000ms");
    return {static_cast<std::uint64_t>(std::llround(rate)), static_cast<std::uint64_t>(std::llround(delay))};
}

}  // namespace accel::softnic
