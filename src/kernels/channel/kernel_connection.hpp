// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/connect.hpp"
#include "kernels/kernel_host.hpp"

namespace accel::gpu {

using kernel_connection = core::established<kernel_client, core::connection>;

/// Opens a session and its path for kernels, by `request.deadline`. Its scheme is a `kernel_backend`.
[[nodiscard]] result<kernel_connection> open_kernel_connection(const core::connect_request& request,
                                                               const kernel_setup& kernels);

}  // namespace accel::gpu
