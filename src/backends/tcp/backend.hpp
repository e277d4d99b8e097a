// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::tcp {

/// The `tcp` scheme: kernel sockets, bytes received straight into their slots.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);

}  // namespace accel::tcp
