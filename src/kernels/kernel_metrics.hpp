// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/metrics/metrics_sums.hpp"

#include <accel_transport/gpu_channel.hpp>
#include <accel_transport/gpu_service.hpp>

namespace accel::gpu {

/// Only what its kernels counted; the host counts sessions and time as for every server.
void add_to(core::kernel_sums& sums, const gpu_service_statistics& one) noexcept;
void add_to(core::kernel_sums& sums, const gpu_channel_statistics& one) noexcept;

}  // namespace accel::gpu
