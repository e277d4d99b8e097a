// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"

#include <memory>

namespace accel::examples::serving {

/// The network of examples/digits, which is built into the program, on the host. It takes a tensor of 1×1×8×8 floats of
/// 0 … 1, or a raw 640x480 RGB frame, and gives 10 probabilities. `invalid_argument`: a value out of range, a blank
/// frame.
[[nodiscard]] result<std::unique_ptr<model>> make_digits();

}  // namespace accel::examples::serving
