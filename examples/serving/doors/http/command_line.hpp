// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"

#include <optional>

namespace accel::examples::serving::doors {

/// What a door was started with.
struct door_command {
    choices chosen;
    bool json = false;  ///< what it says is JSON
};

/// Reads a command line, and the configuration file that it names; options win over the file. A value: the exit status
/// of a program that has nothing to do, after what it had to say.
[[nodiscard]] std::optional<int> read_command_line(int argc, char** argv, door_command& to);

}  // namespace accel::examples::serving::doors
