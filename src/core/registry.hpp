#pragma once

#include <memory>
#include <vector>

#include "core/backend.hpp"

namespace accel::core {

/// Every backend of this build, best first: the order in which `auto://` tries them.
[[nodiscard]] std::vector<std::unique_ptr<backend>> make_backends(context_state& context);

}  // namespace accel::core
