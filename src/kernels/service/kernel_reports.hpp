// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/gpu_service.hpp>

namespace accel::gpu {

/// Fills in `requests`, `replies`, `expired` and `dropped`, as the kernels of this service last reported them. Any
/// thread, while they run.
void read_reports(const device::service_ref& service, gpu_service_statistics& out) noexcept;

}  // namespace accel::gpu
