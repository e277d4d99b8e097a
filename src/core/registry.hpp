// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>
#include <vector>

namespace accel::core {

class context_state;

/// Every backend of this build, best first: the order in which `auto://` tries them.
[[nodiscard]] std::vector<std::unique_ptr<backend>> make_backends(context_state& context);

}  // namespace accel::core
