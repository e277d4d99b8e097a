// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/graph/owned_steps.hpp>

struct CUstream_st;

/// The library's own kernels in a recorded graph.
namespace accel::gpu {

/// Give the beginning and the end of an iteration to a stream that records; the end launches its graph anew.
/// They return a cudaError_t.
[[nodiscard]] int begin_iteration(CUstream_st* stream, const accel::device::service_ref& service,
                                  const accel::device::detail::graph_memory& memory) noexcept;
[[nodiscard]] int end_iteration(CUstream_st* stream, const accel::device::service_ref& service,
                                const accel::device::detail::graph_memory& memory) noexcept;
/// The kernel that ends iterations of `memory` and waits for the one before it itself; or null.
[[nodiscard]] const void* waiting_kernel(const accel::device::detail::graph_memory& memory) noexcept;

}  // namespace accel::gpu
