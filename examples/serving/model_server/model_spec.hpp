// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/model.hpp"
#include "serving/models/synthetic.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::serving {

/// Which model, and where it comes from: NAME[=SPEC].
struct model_spec {
    enum class source : std::uint8_t { builtin, synthetic, file };
    std::string name;
    source from = source::synthetic;
    std::string path;  ///< of a file
};

/// From "digits", "resnet50=synthetic", "resnet50=models/resnet50.pt". Without SPEC: builtin for digits, synthetic for
/// others. `invalid_argument`: no such model, or no such source; the sentence lists them.
[[nodiscard]] result<model_spec> parse_model_spec(std::string_view text);

/// Where models work, and how synthetic ones do.
struct model_place {
    std::optional<std::int16_t> gpu;  ///< else on the host
    synthetic_options synthetic{};
    bool graphs = true;  ///< on a GPU: inferences are recorded and replayed where the model can be
};

/// Loads it; says on standard error if it was to be recorded and cannot be. Fails as the loaders do. May block.
[[nodiscard]] result<std::unique_ptr<model>> open_model(const model_spec& spec, const model_place& place);

}  // namespace accel::examples::serving
