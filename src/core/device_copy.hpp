// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/accelerator.hpp"
#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>

namespace accel::core {

/// Copies between memory of the device and of the host, and sleeps until that is done: `timed_out` at
/// `deadline`, `device_lost` if the device has failed. Beside kernels that stay, too.
[[nodiscard]] result<void> copy_and_wait(accelerator_device& gpu, std::byte* to, const std::byte* from,
                                         std::size_t bytes, nanoseconds deadline);

}  // namespace accel::core
