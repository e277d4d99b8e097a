// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>

namespace accel::perf {

/// Answers each request as its `command` says. Without `check` it neither reads nor writes a payload byte.
void serve_request(exchange request);

}  // namespace accel::perf
