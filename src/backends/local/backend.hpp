// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::local {

/// `local://name`: client and server in one process. Nothing moves: the server works in the client's slots.
/// The lower bound that other transports are measured against.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);

}  // namespace accel::local
