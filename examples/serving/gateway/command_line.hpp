// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"
#include "serving/gateway/settings.hpp"

#include <optional>

namespace accel::examples::gateway {

/// What the program was started with: one of the two.
struct command {
    settings passing;               ///< between transports
    serving::doors::choices doors;  ///< for clients of the Open Inference Protocol
    bool opens_doors = false;
};

/// Reads a command line, and the configuration file that it names; options win over the file. Nothing: go on. Else the
/// exit status, after whatever had to be printed.
[[nodiscard]] std::optional<int> read_command_line(int argc, char** argv, command& out);

}  // namespace accel::examples::gateway
