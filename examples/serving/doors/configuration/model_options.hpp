// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"

#include <accel_transport/status.hpp>

#include <span>
#include <string>
#include <vector>

namespace accel::examples::serving::doors {

/// "NAME=URI" of a command line.
[[nodiscard]] result<model_place> read_model_place(const std::string& text);

/// Models of files. `invalid_argument` names the file that is wrong.
[[nodiscard]] result<std::vector<oip::model_description>> read_descriptions(std::span<const std::string> files);

}  // namespace accel::examples::serving::doors
