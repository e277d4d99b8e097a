#pragma once

#include <accel_transport/device/detail/graph_steps.hpp>

struct CUstream_st;

/// The library's own kernels in a recorded graph.
namespace accel::cuda {

/// Give the beginning and the end of a turn to a stream that records; the end launches its graph anew. They
/// return a cudaError_t.
[[nodiscard]] int begin_turn(CUstream_st* stream, const accel::device::service_ref& service,
                             const accel::device::graph_memory& memory) noexcept;
[[nodiscard]] int end_turn(CUstream_st* stream, const accel::device::service_ref& service,
                           const accel::device::graph_memory& memory) noexcept;

}  // namespace accel::cuda
