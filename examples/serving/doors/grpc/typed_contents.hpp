// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <span>

namespace accel::examples::serving::wire {

// Elements that stand in the message as numbers (InferTensorContents). `input` is an InferInputTensor.

/// Says whether they are the elements of the tensor: in the list of its type, each within its range, as many as the
/// shape has. `invalid_argument`: they are not; `unsupported`: the type has no list (FP16, BF16).
[[nodiscard]] result<void> check_contents(const cursor& input, const tensor& what);

/// Writes elements that `check_contents` has found good to the `size_bytes(what)` of `to`.
void write_contents(const cursor& input, const tensor& what, std::span<std::byte> to);

}  // namespace accel::examples::serving::wire
