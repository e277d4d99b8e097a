// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::report {

/// Bytes from "4096", "64K", "1M" or "1G" (powers of 1024), also as "64KiB"; nothing where the text is anything else.
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);

/// A comma-separated list of sizes, at least one.
[[nodiscard]] std::optional<std::vector<std::size_t>> parse_sizes(std::string_view text);

/// "64 B", "4 KiB", "1.5 MiB".
[[nodiscard]] std::string size_text(std::size_t bytes);

}  // namespace accel::report
