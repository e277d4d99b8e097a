// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>

namespace accel::examples::serving::doors {

/// Reads a configuration in JSON, with comments, into `to`; what it does not say stays as it is. `file` is its name in
/// errors, and the folder of its relative paths. `invalid_argument`: file, key and what is right.
[[nodiscard]] result<void> read_configuration(std::string_view text, const std::string& file, choices& to);

/// The same of a file, up to 1 MiB.
[[nodiscard]] result<void> read_configuration_file(const std::string& file, choices& to);

}  // namespace accel::examples::serving::doors
