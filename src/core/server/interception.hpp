// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>
#include <accel_transport/server.hpp>

namespace accel::core {

/// Runs the interceptors of the server, then the handler.
[[nodiscard]] handler intercepted(const handler& service, const server_options& options);

}  // namespace accel::core
