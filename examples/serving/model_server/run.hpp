// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/settings.hpp"

namespace accel::examples::serving {

/// Serves until a stop signal, which the caller has blocked; the exit status.
[[nodiscard]] int run_server(const settings& chosen);

}  // namespace accel::examples::serving
