// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::doors {

/// Adds the name of a header that is metadata behind the doors, in lower case, once. `invalid_argument`: metadata
/// cannot have this key, there are too many, or it belongs to the doors: it frames a message, it is for one connection
/// only, or it is about access.
[[nodiscard]] result<void> add_passed_name(std::string_view name, std::vector<std::string>& to);

}  // namespace accel::examples::serving::doors
