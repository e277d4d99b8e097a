// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/commands.hpp"
#include "perf/load.hpp"

#include <string>
#include <vector>

namespace accel::perf {

/// A measurement with what it was a measurement of.
struct outcome {
    std::string scheme;
    load what;
    measurement seen;
};

/// Prints the table; writes the JSON where one was asked for. False if it could not be written.
[[nodiscard]] bool present(const std::vector<outcome>& outcomes, const settings& chosen);

}  // namespace accel::perf
