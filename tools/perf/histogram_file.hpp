// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/output.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace accel::perf {

/// Where the histogram of one of several measurements goes: "out.hgrm" is "out-2-tcp-4096.hgrm" for the second.
[[nodiscard]] std::string histogram_path(const std::string& path, const std::vector<outcome>& all, std::size_t place);

/// A file for each measurement. Says false after a sentence on standard error.
[[nodiscard]] bool write_histograms(const std::string& path, const std::vector<outcome>& all);

}  // namespace accel::perf
