// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::doors {

/// Adds the name of a header, in lower case and once, to those that the doors pass on as metadata. `invalid_argument`:
/// metadata cannot have this key, there are too many names, or only the doors use this header: for framing, for one
/// connection, or for access.
[[nodiscard]] result<void> add_passed_name(std::string_view name, std::vector<std::string>& to);

}  // namespace accel::examples::serving::doors
