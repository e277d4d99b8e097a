// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/accelerator.hpp"
#include "core/clock.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>

namespace accel::core {

/// Copies between device and host memory, and sleeps until that is done. `timed_out` at `deadline`;
/// `device_lost` if the device has failed. Works while persistent kernels run.
[[nodiscard]] result<void> copy_and_wait(accelerator_device& gpu, std::byte* to, const std::byte* from,
                                         std::size_t bytes, nanoseconds deadline);

}  // namespace accel::core
