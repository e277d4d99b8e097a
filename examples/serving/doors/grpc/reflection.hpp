// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"

#include <accel_transport/status.hpp>

#include <span>
#include <string>

namespace accel::examples::serving::wire {

/// The ServerReflectionResponse to a ServerReflectionRequest: of grpc.reflection.v1 and v1alpha, whose messages are the
/// same. An unknown name gets an ErrorResponse. `invalid_argument`: the request is malformed, or a name in it has more
/// than 256 bytes. Threads: all.
[[nodiscard]] result<std::string> answer_reflection(std::span<const slice> request);

}  // namespace accel::examples::serving::wire
