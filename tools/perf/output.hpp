// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/commands.hpp"
#include "perf/load.hpp"

#include <string>
#include <vector>

namespace accel::perf {

/// A measurement with what it was a measurement of.
struct outcome {
    load what;
    measurement seen;
};

/// Prints the table; writes the JSON and the histograms that were asked for. False if one could not be written.
[[nodiscard]] bool present(const std::vector<outcome>& outcomes, const settings& chosen);

}  // namespace accel::perf
