// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/region_part.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

/// An output that a request asks for.
struct output_choice {
    std::size_t index = 0;                ///< in `model_description::outputs`
    bool binary = false;                  ///< behind the JSON; else as numbers in it
    std::optional<region_part> region{};  ///< there instead
};

/// The outputs that a request names, in its order; all of them where it names none. `invalid_argument`: the model has
/// no such output, or one is named twice; `unsupported`: it is wanted as something else than a tensor of the response.
[[nodiscard]] result<std::vector<output_choice>> chosen_outputs(const nlohmann::json& request,
                                                                const model_description& model);

}  // namespace accel::examples::serving::oip
