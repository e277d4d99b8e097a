// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/failure.hpp"
#include "digits/frame.hpp"

#include <cstddef>
#include <span>

namespace accel::examples::digits {

/// Turns a raw 640x480 RGB frame into the network's tensor: grey, find the digit, crop a square around it,
/// resize to 8x8 by area, scale so that the brightest value is 1. Dark on light and light on dark both do.
/// The digit must leave the frame's corners (32 pixels) free. Allocates nothing; needs 80 KiB of stack.
/// Fails with frame_size_wrong (`frame` is not frame_bytes long) or frame_blank; `tensor` is then untouched.
[[nodiscard]] failure preprocess(std::span<const std::byte> frame, std::span<float, tensor_values> tensor) noexcept;

}  // namespace accel::examples::digits
