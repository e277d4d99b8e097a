// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/door/inference.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>

#include <string>

#include <grpcpp/support/byte_buffer.h>

namespace accel::examples::serving::doors {

// Messages that answer an inference. They hold copies, so that no client holds a slot by reading slowly.

/// A ModelInferResponse. `protocol_error`: the server answered what the model's description does not promise.
[[nodiscard]] result<::grpc::ByteBuffer> response_message(const inference& of, const completion& from);

/// A ModelStreamInferResponse with this part of the answer, or, without `more`, the last one.
[[nodiscard]] result<::grpc::ByteBuffer> stream_message(const inference& of, const completion& from);
/// One that says in words what was wrong with a request.
[[nodiscard]] ::grpc::ByteBuffer stream_error_message(std::string_view id, std::string_view sentence);

}  // namespace accel::examples::serving::doors
