// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/door/inference.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>

#include <string>

#include <grpcpp/support/byte_buffer.h>

namespace accel::examples::serving::doors {

// Messages that answer an inference. They hold copies, so that no client holds a slot by reading slowly.

/// A ModelInferResponse; outputs are also copied to the client's regions. `protocol_error`: the server answered what
/// the model's description does not promise. `invalid_argument`: a region is not whole any more.
[[nodiscard]] result<::grpc::ByteBuffer> response_message(inference& of, const completion& from);

/// The same as a ModelStreamInferResponse: with this part of the answer, or, without `more`, the last one.
[[nodiscard]] result<::grpc::ByteBuffer> stream_message(inference& of, const completion& from);
/// One that says in words what was wrong with a request.
[[nodiscard]] ::grpc::ByteBuffer stream_error_message(std::string_view id, std::string_view sentence);

}  // namespace accel::examples::serving::doors
