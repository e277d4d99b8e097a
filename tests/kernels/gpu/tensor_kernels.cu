// SPDX-License-Identifier: Apache-2.0
#include "gpu/tensor_kernels.hpp"

#include <cuda_runtime.h>

namespace accel::tests {
namespace {

__device__ std::uint64_t first() {
    return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t step() {
    return std::uint64_t{gridDim.x} * blockDim.x;
}
__device__ std::byte increased(std::byte by_one) {
    return static_cast<std::byte>(static_cast<unsigned>(by_one) + 1);
}

/// From the input at first, then from the output.
__global__ void add_one(device::graph_iteration iteration, bool begins) {
    const std::uint64_t bytes = iteration.output_bytes * *iteration.count;
    const std::byte* const from = begins ? iteration.input : iteration.output;
    for (std::uint64_t i = first(); i < bytes; i += step()) iteration.output[i] = increased(from[i]);
}

/// A block for each request.
__global__ void add_one_in_place(device::graph_iteration iteration, bool begins) {
    if (blockIdx.x >= *iteration.count) return;
    const device::exchange_ref& exchange = iteration.exchanges[blockIdx.x];
    const std::byte* const from = begins ? exchange.request : exchange.response;
    for (std::uint64_t i = threadIdx.x; i < exchange.request_bytes; i += blockDim.x)
        exchange.response[i] = increased(from[i]);
    if (threadIdx.x == 0) iteration.answers[blockIdx.x].length = exchange.request_bytes;
}

__global__ void fail_some(device::graph_iteration iteration, std::uint32_t code) {
    const std::uint32_t i = threadIdx.x;
    if (i >= *iteration.count || static_cast<unsigned>(iteration.input[i * iteration.input_bytes]) % 3 != 0) return;
    iteration.answers[i].reason = status::application_error;
    iteration.answers[i].code = code;
}

}  // namespace

bool record_sums(CUstream_st* stream, const device::graph_iteration& iteration, int nodes) {
    for (int i = 0; i < nodes; ++i)
        if (iteration.input_bytes == 0)
            add_one_in_place<<<iteration.batch, 128, 0, stream>>>(iteration, i == 0);
        else
            add_one<<<8, 256, 0, stream>>>(iteration, i == 0);
    return cudaGetLastError() == cudaSuccess;
}

bool record_failures(CUstream_st* stream, const device::graph_iteration& iteration, std::uint32_t code) {
    fail_some<<<1, iteration.batch, 0, stream>>>(iteration, code);
    return cudaGetLastError() == cudaSuccess;
}

bool record_host_function(CUstream_st* stream) {
    return cudaLaunchHostFunc(
               stream, [](void*) {}, nullptr) == cudaSuccess;
}

}  // namespace accel::tests
