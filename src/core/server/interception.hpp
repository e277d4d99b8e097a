// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>
#include <accel_transport/server.hpp>

namespace accel::core {

/// The handler, behind the interceptors of the server, if it has any.
[[nodiscard]] handler intercepted(const handler& service, const server_options& options);

}  // namespace accel::core
