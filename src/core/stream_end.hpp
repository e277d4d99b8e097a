// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/accelerator.hpp"
#include "core/clock.hpp"

#include <accel_transport/status.hpp>

namespace accel::core {

/// Sleeps until everything that was given to the application's `stream` has ended; `timed_out` at `deadline`.
[[nodiscard]] status wait_for_end(accelerator_device& gpu, CUstream_st* stream, nanoseconds deadline);

}  // namespace accel::core
