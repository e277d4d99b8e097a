// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>

namespace accel::examples::serving::access {

/// The text of a file with secrets, up to 1 MiB. `invalid_argument`: it cannot be read, or other users can read it or
/// its group can write it.
[[nodiscard]] result<std::string> read_private_file(const std::string& path);

}  // namespace accel::examples::serving::access
