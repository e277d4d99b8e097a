// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Short names of host code for what it shares with kernels (include/accel_transport/device/detail).
namespace accel::device::detail {
namespace mlx5 {}
namespace proxy {}
namespace wire {}
}  // namespace accel::device::detail

namespace accel {
namespace mlx5 = device::detail::mlx5;
namespace proxy = device::detail::proxy;
namespace wire = device::detail::wire;
}  // namespace accel
