// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::local {

/// `local://name`: client and server in one process. No bytes move: the server works in the client's
/// slots. Other transports are measured against this lower bound.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);

}  // namespace accel::local
