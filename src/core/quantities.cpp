// SPDX-License-Identifier: Apache-2.0
#include "core/quantities.hpp"

#include <accel_transport/options.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

constexpr std::uint64_t kib = 1U << 10;
constexpr std::array<unit, 9> size_units{{{"", 1},
                                          {"K", kib},
                                          {"M", kib << 10},
                                          {"G", kib << 20},
                                          {"T", kib << 30},
                                          {"KiB", kib},
                                          {"MiB", kib << 10},
                                          {"GiB", kib << 20},
                                          {"TiB", kib << 30}}};
constexpr std::array<unit, 6> time_units{{{"ns", 1},
                                          {"us", 1'000},
                                          {"ms", 1'000'000},
                                          {"s", 1'000'000'000},
                                          {"m", 60'000'000'000},
                                          {"h", 3'600'000'000'000}}};
constexpr std::uint64_t longest_size = std::numeric_limits<std::size_t>::max();
constexpr std::uint64_t longest_time = std::numeric_limits<std::int64_t>::max();

std::optional<std::uint64_t> size_of(std::string_view text) {
    return parse_quantity(text, size_units, longest_size);
}
std::optional<std::uint64_t> time_of(std::string_view text) {
    return parse_quantity(text, time_units, longest_time);
}

/// A number, and what follows it in lower case without blanks.
struct number_and_suffix {
    std::string number;
    std::string suffix;
};

number_and_suffix split_quantity(std::string_view text) {
    number_and_suffix out;
    for (const char c : text.substr(0, 32)) {
        const auto byte = static_cast<unsigned char>(c);
        const bool digit = std::isdigit(byte) != 0 || c == '.';
        if (digit && out.suffix.empty())
            out.number.push_back(c);
        else if (std::isspace(byte) == 0)
            out.suffix.push_back(static_cast<char>(std::tolower(byte)));
    }
    return out;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> all) {
    return std::ranges::find(all, text) != all.end();
}

/// "64KiB" for "64 kB"; empty if it is not clear what was meant.
std::string meant_size(std::string_view text) {
    const number_and_suffix said = split_quantity(text);
    if (is_one_of(said.suffix, {"b", "byte", "bytes"})) return said.number;
    const bool known = !said.suffix.empty() && is_one_of(said.suffix.substr(0, 1), {"k", "m", "g", "t"}) &&
                       is_one_of(said.suffix.substr(1), {"", "b", "i", "ib"});
    if (!known) return {};
    const auto letter = static_cast<char>(std::toupper(static_cast<unsigned char>(said.suffix.front())));
    return fmt::format("{}{}iB", said.number, letter);
}

/// Other names of the units of time.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> time_names{{
    {"", "s"},
    {"sec", "s"},
    {"secs", "s"},
    {"second", "s"},
    {"seconds", "s"},
    {"min", "m"},
    {"minutes", "m"},
    {"hours", "h"},
    {"msec", "ms"},
    {"millis", "ms"},
    {"usec", "us"},
    {"micros", "us"},
    {"\xc2\xb5s", "us"},
    {"\xce\xbcs", "us"},
}};

/// "10ms" for "10 millis".
std::string meant_duration(std::string_view text) {
    const number_and_suffix said = split_quantity(text);
    const auto known =
        std::ranges::find(time_names, said.suffix, &std::pair<std::string_view, std::string_view>::first);
    return fmt::format("{}{}", said.number, known == time_names.end() ? said.suffix : known->second);
}

/// `meant`: empty, or not valid either: nothing is proposed.
std::string with_proposal(std::string expected, const std::string& meant, bool valid) {
    return valid ? fmt::format("{}; did you mean {}?", expected, meant) : expected;
}

error not_valid(std::string_view text, std::string_view what, const std::string& expected) {
    return {status::invalid_argument, 0,
            fmt::format("'{}' is not a valid {}: expected {}", text.substr(0, 64), what, expected)};
}

}  // namespace

std::optional<std::uint64_t> parse_quantity(std::string_view text, std::span<const unit> units, std::uint64_t most) {
    const char* const end = text.data() + text.size();
    std::uint64_t whole = 0;
    auto [rest, failure] = std::from_chars(text.data(), end, whole);
    if (failure != std::errc{}) return std::nullopt;
    std::uint64_t decimals = 0;
    std::uint64_t scale = 1;
    if (rest != end && *rest == '.') {
        const char* const begin = rest + 1;
        const auto [after, wrong] = std::from_chars(begin, end, decimals);
        const auto digits = after - begin;
        if (wrong != std::errc{} || digits > 18) return std::nullopt;
        for (auto i = digits; i > 0; --i) scale *= 10;
        rest = after;
    }
    const auto found =
        std::ranges::find(units, std::string_view(rest, static_cast<std::size_t>(end - rest)), &unit::name);
    if (found == units.end()) return std::nullopt;
    const std::uint64_t common = std::gcd(found->factor, scale);
    if (decimals % (scale / common) != 0) return std::nullopt;
    const std::uint64_t part = decimals / (scale / common) * (found->factor / common);
    std::uint64_t out = 0;
    const bool too_large =
        __builtin_mul_overflow(whole, found->factor, &out) || __builtin_add_overflow(out, part, &out);
    return too_large || out > most ? std::nullopt : std::optional(out);
}

std::string expected_size(std::string_view text) {
    const std::string meant = meant_size(text);
    return with_proposal("a whole number of bytes such as 4096, 64KiB or 1.5GiB", meant, size_of(meant).has_value());
}

std::string expected_duration(std::string_view text) {
    const std::string meant = meant_duration(text);
    return with_proposal("a duration such as 20us, 500ms or 2s", meant, time_of(meant).has_value());
}

}  // namespace accel::core

namespace accel {

result<std::size_t> parse_size(std::string_view text) {
    if (const auto read = core::size_of(text)) return static_cast<std::size_t>(*read);
    return core::not_valid(text, "size", core::expected_size(text));
}

result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
    if (const auto read = core::time_of(text)) return std::chrono::nanoseconds{static_cast<std::int64_t>(*read)};
    return core::not_valid(text, "duration", core::expected_duration(text));
}

}  // namespace accel
