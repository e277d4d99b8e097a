// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Numbers with a unit, as options, tools and configuration files write them.
namespace accel::core {

/// The name of a unit after a number, and its factor.
struct unit {
    std::string_view name;
    std::uint64_t factor;
};

/// The text as a number of the smallest unit: a whole or decimal number of at most 18 decimals, and one of `units`.
/// Empty if it is anything else, more than `most`, or not a whole number of the smallest unit.
[[nodiscard]] std::optional<std::uint64_t> parse_quantity(std::string_view text, std::span<const unit> units,
                                                          std::uint64_t most);

/// What is expected in place of a text that is not a size or duration, with what was probably meant: "… such as 64KiB;
/// did you mean 1KiB?".
[[nodiscard]] std::string expected_size(std::string_view text);
[[nodiscard]] std::string expected_duration(std::string_view text);

}  // namespace accel::core
