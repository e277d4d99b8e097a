// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/load/run.hpp"

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace accel::examples::serving {

/// Durations in microseconds.
[[nodiscard]] nlohmann::json load_json(const load_settings& chosen, const load_outcome& outcome);
/// A line for each stage of each class of clients, under a line of titles.
[[nodiscard]] std::string load_csv(const load_settings& chosen, const load_outcome& outcome);
/// For people.
[[nodiscard]] std::string load_table(const load_settings& chosen, const load_outcome& outcome);

}  // namespace accel::examples::serving
