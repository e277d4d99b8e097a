// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace accel::report {

/// A comma-separated list of sizes (`parse_size`), at least one.
[[nodiscard]] result<std::vector<std::size_t>> parse_sizes(std::string_view text);

/// What is wrong with a size or a list of sizes, for a command line; empty: nothing.
[[nodiscard]] std::string check_size(const std::string& text);
[[nodiscard]] std::string check_sizes(const std::string& text);

/// "64 B", "4 KiB", "1.5 MiB".
[[nodiscard]] std::string size_text(std::size_t bytes);

}  // namespace accel::report
