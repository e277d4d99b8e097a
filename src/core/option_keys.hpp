// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/quantities.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

/// Options as keys of URIs: a list of `option_key` says which keys there are and how their values are read.
namespace accel::core {

// False: not a value of this type.
[[nodiscard]] bool parse_value(std::string_view text, std::uint32_t& out);
[[nodiscard]] bool parse_value(std::string_view text, std::uint16_t& out);
[[nodiscard]] bool parse_value(std::string_view text, int& out);
[[nodiscard]] bool parse_value(std::string_view text, std::size_t& out);
[[nodiscard]] bool parse_value(std::string_view text, std::chrono::nanoseconds& out);
[[nodiscard]] bool parse_value(std::string_view text, bit_rate& out);
[[nodiscard]] bool parse_value(std::string_view text, bool& out);
[[nodiscard]] bool parse_value(std::string_view text, std::string& out);
[[nodiscard]] bool parse_value(std::string_view text, memory_kind& out);

/// A value's name in a URI.
template <class Value>
using named = std::pair<std::string_view, Value>;

template <class Value>
[[nodiscard]] bool find_name(std::string_view text, std::initializer_list<named<Value>> names, Value& out) {
    const auto found = std::ranges::find(names, text, &named<Value>::first);
    if (found == names.end()) return false;
    out = found->second;
    return true;
}

/// `expected` of the types that both ends have. (A shared library would export specialisations for std's types.)
template <class Value>
consteval std::string_view expected_of_both() {
    if constexpr (std::is_same_v<Value, std::uint16_t>) return "a port, 0 to 65535";
    if constexpr (std::is_same_v<Value, bit_rate>) return "a rate such as 200Mb/s or 25Gb/s, or 0";
    if constexpr (std::is_same_v<Value, bool>) return "true or false";
    if constexpr (std::is_same_v<Value, std::string>) return "text";
    if constexpr (std::is_same_v<Value, memory_kind>) return "host, or a GPU such as cuda:0";
    return "a whole number";
}

/// What a value of this type is, in words.
template <class Value>
constexpr std::string_view expected = expected_of_both<Value>();

/// The same for this text, which is not one; it may say what was meant.
template <class Value>
[[nodiscard]] std::string expected_instead(std::string_view text) {
    if constexpr (std::is_same_v<Value, std::size_t>)
        return expected_size(text);
    else if constexpr (std::is_same_v<Value, std::chrono::nanoseconds>)
        return expected_duration(text);
    else
        return std::string{expected<Value>};
}

template <class Options>
struct option_key {
    std::string_view name;
    bool (*set)(Options&, std::string_view);
    std::string (*expects)(std::string_view);
};

/// The key of `part.field` of `options`, for a list.
#define ACCEL_OPTION_OF(options, part, field)                                                                          \
    option_key<options> {                                                                                              \
#field,                                                                                                        \
            [](options & o,                                                                                            \
               std::string_view text) { return parse_value(text, o part.field); },                                     \
                                                                                &core::expected_instead <              \
                                                                                    std::remove_cvref_t <              \
                                                                                    decltype(std::declval <options&>() \
                                                                                                 part.field)>>         \
    }

[[nodiscard]] inline error out_of_bounds(std::string_view what, std::string_view range) {
    return {status::invalid_argument, 0, fmt::format("option {} must be {}", what, range)};
}

/// Sets the option with this name. False: there is none.
template <class Options, std::size_t Count>
[[nodiscard]] result<bool> set_option(const std::array<option_key<Options>, Count>& keys, std::string_view name,
                                      std::string_view value, Options& options) {
    const auto found = std::ranges::find(keys, name, &option_key<Options>::name);
    if (found == keys.end()) return false;
    if (found->set(options, value)) return true;
    return error{status::invalid_argument, 0,
                 fmt::format("'{}' is not a valid value for {}: expected {}", value, name, found->expects(value))};
}

template <class Options, std::size_t Count>
[[nodiscard]] std::string names_of(const std::array<option_key<Options>, Count>& keys) {
    std::string out;
    for (const auto& each : keys) out += fmt::format("{}{}", out.empty() ? "" : ", ", each.name);
    return out;
}

}  // namespace accel::core
