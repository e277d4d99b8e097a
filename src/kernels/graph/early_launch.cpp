// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph/early_launch.hpp"

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

namespace accel::gpu {

// Edges have ports since 12.3; since 13.0 the functions have the names used here.
#if CUDART_VERSION >= 13000
namespace {

/// The node of `kernel`, and its only dependency.
struct last_edge {
    cudaGraphNode_t from = nullptr;
    cudaGraphNode_t to = nullptr;
    cudaGraphEdgeData is{};
};

bool is_kernel(cudaGraphNode_t node) noexcept {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    return cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
}

cudaGraphNode_t node_of(CUgraph_st* graph, const void* kernel) {
    std::size_t count = 0;
    if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess) return nullptr;
    std::vector<cudaGraphNode_t> nodes(count);
    if (cudaGraphGetNodes(graph, nodes.data(), &count) != cudaSuccess) return nullptr;
    for (cudaGraphNode_t each : nodes) {
        cudaKernelNodeParams seen{};
        if (is_kernel(each) && cudaGraphKernelNodeGetParams(each, &seen) == cudaSuccess && seen.func == kernel)
            return each;
    }
    return nullptr;
}

bool find_edge(CUgraph_st* graph, const void* kernel, last_edge& out) {
    out.to = node_of(graph, kernel);
    std::size_t count = 0;
    if (out.to == nullptr || cudaGraphNodeGetDependencies(out.to, nullptr, nullptr, &count) != cudaSuccess)
        return false;
    return count == 1 && cudaGraphNodeGetDependencies(out.to, &out.from, &out.is, &count) == cudaSuccess &&
           is_kernel(out.from);
}

/// True: the edge is another now. It is as it was if that cannot be.
bool replace(CUgraph_st* graph, const last_edge& edge, const cudaGraphEdgeData& by) noexcept {
    if (cudaGraphRemoveDependencies(graph, &edge.from, &edge.to, &edge.is, 1) != cudaSuccess) return false;
    if (cudaGraphAddDependencies(graph, &edge.from, &edge.to, &by, 1) == cudaSuccess) return true;
    (void)cudaGraphAddDependencies(graph, &edge.from, &edge.to, &edge.is, 1);
    return false;
}

bool device_waits() noexcept {
    int device = 0;
    int major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
}

constexpr cudaGraphEdgeData when_begun{
    cudaGraphKernelNodePortLaunchCompletion, 0, cudaGraphDependencyTypeProgrammatic, {}};

bool change(CUgraph_st* graph, const void* kernel, const cudaGraphEdgeData& to) {
    last_edge found;
    const bool changed = find_edge(graph, kernel, found) && replace(graph, found, to);
    (void)cudaGetLastError();  // of nodes whose kernels another CUDA runtime has
    return changed;
}

}  // namespace

bool launch_early(CUgraph_st* graph, const void* kernel) {
    return device_waits() && change(graph, kernel, when_begun);
}

void launch_late(CUgraph_st* graph, const void* kernel) {
    (void)change(graph, kernel, cudaGraphEdgeData{});
}

#else

bool launch_early(CUgraph_st*, const void*) {
    return false;
}

void launch_late(CUgraph_st*, const void*) {}

#endif

}  // namespace accel::gpu
