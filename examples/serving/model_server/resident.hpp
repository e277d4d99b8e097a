// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/model_spec.hpp"
#include "serving/model_server/settings.hpp"

namespace accel::examples::serving {

/// Serves one model at one gpu:// URI from a recorded graph, without the host, until a stop signal; the exit status.
[[nodiscard]] int run_resident(const settings& chosen, const model_spec& spec);

}  // namespace accel::examples::serving
