#pragma once

#include <accel_transport/device/graph_steps.hpp>

#include <cstdint>

struct CUstream_st;

/// The library's own kernels in a recorded graph.
namespace accel::cuda {

/// How the turn after this one begins.
enum class next_turn : std::uint8_t {
    relaunch,  ///< the last kernel launches its graph anew
    loop,      ///< the graph's body is that of a conditional node, which the last kernel leaves
};

/// Give the beginning and the end of a turn to a stream that records. `loop` is the conditional node's
/// handle. They return a cudaError_t.
[[nodiscard]] int begin_turn(CUstream_st* stream, const accel::device::service_ref& service,
                             const accel::device::graph_memory& memory) noexcept;
[[nodiscard]] int end_turn(CUstream_st* stream, const accel::device::service_ref& service,
                           const accel::device::graph_memory& memory, next_turn next,
                           unsigned long long loop) noexcept;

}  // namespace accel::cuda
