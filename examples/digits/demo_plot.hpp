// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digits_row.hpp"

#include <string>
#include <vector>

namespace accel::examples::digits {

/// Draws a bar for each row, its stages stacked, as an SVG; one scale for raw and one for tensor, as they
/// differ by far. Says false after a sentence on standard error.
[[nodiscard]] bool write_plot(const std::string& path, const std::vector<digits_row>& rows);

[[nodiscard]] std::string plot_svg(const std::vector<digits_row>& rows);

}  // namespace accel::examples::digits
