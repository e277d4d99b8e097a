// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace accel::report {

/// From "20us", "500ms", "10s", "1.5s", "5m" or "1h": above 0, and at most a day; nothing where the text is anything
/// else.
[[nodiscard]] std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);

}  // namespace accel::report
