// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>

namespace accel::examples::serving {

/// A model that the table lacks, described in JSON (docs/serving.md):
///   {"name": "mine", "gflops": 1.5, "image": [500, 546],
///    "inputs": [{"type": "float32", "shape": [1, 3, 64, 64]}], "outputs": [{"type": "float32", "shape": [1, 10]}]}
/// `gflops` and `image` may be left out. `invalid_argument`: a sentence says which field is wrong.
[[nodiscard]] result<model_shapes> parse_shapes(std::string_view json);
/// The same of a file, and into the table (`add_model`).
[[nodiscard]] result<void> add_shapes_file(const std::string& path);

}  // namespace accel::examples::serving
