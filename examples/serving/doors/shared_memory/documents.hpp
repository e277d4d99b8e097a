// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/shared_memory/region_table.hpp"

#include <accel_transport/status.hpp>

#include <span>
#include <string>
#include <string_view>

namespace accel::examples::serving::shared_memory {

/// The body of POST …/region/NAME/register. `invalid_argument`: a member is missing, or is no number.
[[nodiscard]] result<description> read_registration(memory kind, const std::string& name, std::string_view body);

/// The answer to GET …/status: a JSON array.
[[nodiscard]] std::string status_document(memory kind, std::span<const description> regions);

}  // namespace accel::examples::serving::shared_memory
