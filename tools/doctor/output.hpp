// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "doctor/findings.hpp"

#include <nlohmann/json_fwd.hpp>

namespace accel::doctor {

/// For people, on standard output.
void print(const findings& found);

/// `{"version", "machine": {…}, "schemes": [{"scheme", "usable", "reason"}], "auto": […], "advice": […]}`;
/// a limit that does not exist is null.
[[nodiscard]] nlohmann::json json_of(const findings& found);

}  // namespace accel::doctor
