// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"
#include "serving/models/table.hpp"

#include <accel_transport/status.hpp>

#include <string>

namespace accel::examples::serving {

/// What `model_server` serves and `load` sends of a described model, under the name of its target. `unsupported`: it
/// answers in parts, has strings or inputs with open dimensions, or two open dimensions in an output.
[[nodiscard]] result<model_shapes> shapes_of(const oip::model_description& described);
/// The same of a file (docs/serving.md, "Descriptions"), and into the table (`add_model`). Returns the model's name.
[[nodiscard]] result<std::string> add_shapes_file(const std::string& path);

}  // namespace accel::examples::serving
