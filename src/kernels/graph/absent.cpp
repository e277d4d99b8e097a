// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph/recorded_graph.hpp"

/// In the place of cuda_graph.cpp in a build without CUDA.
namespace accel::gpu {

result<std::unique_ptr<recorded_graph>> record_cuda_graph(int, const device::service_ref&,
                                                          const device::detail::graph_memory&, const graph_work&) {
    return error{status::unsupported, 0, "gpu_graph: this build is without CUDA; build it with -DACCEL_CUDA=ON"};
}

}  // namespace accel::gpu
