// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>

namespace accel::examples::serving::access {

/// The text of a file with secrets, up to 1 MiB. `invalid_argument`: it cannot be read, other users own or can read it,
/// or its group can write it.
[[nodiscard]] result<std::string> read_private_file(const std::string& path);

/// The text of a file that says what a program trusts, up to 1 MiB. `invalid_argument`: it cannot be read, or other
/// users own it or can change it.
[[nodiscard]] result<std::string> read_trusted_file(const std::string& path);

}  // namespace accel::examples::serving::access
