// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"

#include <string>

namespace accel::examples::serving::doors {

/// What this build cannot do of what is chosen: a sentence with what to install. Empty: nothing.
[[nodiscard]] std::string missing_in_build(const choices& chosen);

/// Opens the doors and serves until SIGINT or SIGTERM. The exit status of the program.
[[nodiscard]] int run_doors(const char* program, const choices& chosen);

}  // namespace accel::examples::serving::doors
