// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::zmq {

/// ZeroMQ DEALER (client) and ROUTER (server, one a worker) over TCP.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);

}  // namespace accel::zmq
