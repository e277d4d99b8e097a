// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace accel::examples::serving::wire {

// Elements that stand in the message as numbers (InferTensorContents). `input` is an InferInputTensor.

/// Says whether they are the elements of the tensor, and the bytes that they become: in the list of its type, each
/// within its range, as many as the shape has. `invalid_argument`: they are not; `unsupported`: the type has no list
/// (FP16, BF16).
[[nodiscard]] result<std::uint64_t> check_contents(const cursor& input, const tensor& what);
/// The same of BYTES, which become `max_bytes` at most, with their lengths; `shape` counts them.
[[nodiscard]] result<std::uint64_t> check_strings(const cursor& input, const tensor& shape, std::uint64_t max_bytes);

/// Writes elements of this type that `check_contents` has found good to `to`, which has just their size.
void write_contents(const cursor& input, const tensor& what, std::span<std::byte> to);
void write_strings(const cursor& input, std::span<std::byte> to);

}  // namespace accel::examples::serving::wire
