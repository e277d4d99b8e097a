// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/load/mlperf_log.hpp"

namespace accel::examples::serving {

/// Whether this build contains MLPerf's LoadGen.
[[nodiscard]] bool has_loadgen() noexcept;

/// Lets LoadGen decide when calls are made, and write its logs (mlperf_log_*) into the folder. `unsupported` in a build
/// without it. One at a time in a process: LoadGen has global state.
[[nodiscard]] result<load_outcome> run_loadgen(context& ctx, const load_settings& chosen, const mlperf_run& run);

}  // namespace accel::examples::serving
