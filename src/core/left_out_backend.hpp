// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>
#include <string_view>

namespace accel::core {

/// Stands for a scheme that this build was configured without: it is never usable, and says why. `scheme` and
/// `option` are literals.
[[nodiscard]] std::unique_ptr<backend> make_left_out_backend(std::string_view scheme, std::string_view option);

}  // namespace accel::core
