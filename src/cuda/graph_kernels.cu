// SPDX-License-Identifier: Apache-2.0
#include "cuda/graph_kernels.hpp"

#include <algorithm>

namespace accel::cuda {
namespace {

using accel::device::detail::iteration_point;

constexpr unsigned block = 256;
/// What one block copies before a grid of its own is the quicker way.
constexpr std::size_t small_copy = std::size_t{32} << 10;
constexpr std::size_t bytes_a_block = std::size_t{16} << 10;
constexpr std::size_t max_blocks = 64;

/// Which kernel copies what the application's kernels read or write.
enum class copying : std::uint8_t { none, within, apart };

copying copying_of(std::size_t bytes) {
    if (bytes == 0) return copying::none;
    return bytes > small_copy ? copying::apart : copying::within;
}

/// One thread waits; with `copying::within` all bring the requests to where they are looked for.
__global__ void gather_requests(accel::device::service_ref service, accel::device::detail::graph_memory memory,
                                copying copies) {
    if (threadIdx.x == 0) accel::device::detail::gather(service, memory);
    if (copies == copying::within) {
        __syncthreads();
        accel::device::detail::copy_in(memory, threadIdx.x, blockDim.x);
        __syncthreads();
    }
    if (threadIdx.x == 0) accel::device::detail::mark_point(memory, iteration_point::copied_in);
}

__global__ void copy_requests(accel::device::detail::graph_memory memory) {
    accel::device::detail::copy_in(memory, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                                   std::uint64_t{gridDim.x} * blockDim.x);
    __syncthreads();
    if (threadIdx.x != 0) return;
    auto* const copied = &memory.state->reached[static_cast<std::uint32_t>(iteration_point::copied_in)];
    atomicMax(reinterpret_cast<unsigned long long*>(copied),
              static_cast<unsigned long long>(accel::device::clock_ns()));
}

__global__ void copy_responses(accel::device::detail::graph_memory memory) {
    if (blockIdx.x == 0 && threadIdx.x == 0) accel::device::detail::mark_point(memory, iteration_point::worked);
    accel::device::detail::copy_out(memory, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                                    std::uint64_t{gridDim.x} * blockDim.x);
}

__global__ void send_responses(accel::device::service_ref service, accel::device::detail::graph_memory memory,
                               copying copies) {
    if (copies != copying::apart && threadIdx.x == 0)
        accel::device::detail::mark_point(memory, iteration_point::worked);
    if (copies == copying::within) {
        accel::device::detail::copy_out(memory, threadIdx.x, blockDim.x);
        __syncthreads();
    }
    if (threadIdx.x == 0) accel::device::detail::mark_point(memory, iteration_point::copied_out);
    accel::device::detail::end_requests(service, memory, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x != 0) return;
    accel::device::detail::mark_point(memory, iteration_point::answered);
    if (memory.state->stopped == 0) (void)cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
    accel::device::detail::count_iteration(memory);
}

unsigned grid_for(std::size_t bytes) {
    return static_cast<unsigned>(std::clamp<std::size_t>(bytes / bytes_a_block, 1, max_blocks));
}

}  // namespace

int begin_iteration(CUstream_st* stream, const accel::device::service_ref& service,
                    const accel::device::detail::graph_memory& memory) noexcept {
    const std::size_t bytes = memory.iteration.input_bytes * memory.iteration.batch;
    const copying copies = copying_of(bytes);
    gather_requests<<<1, copies == copying::within ? block : 1, 0, stream>>>(service, memory, copies);
    if (copies == copying::apart) copy_requests<<<grid_for(bytes), block, 0, stream>>>(memory);
    return cudaGetLastError();
}

int end_iteration(CUstream_st* stream, const accel::device::service_ref& service,
                  const accel::device::detail::graph_memory& memory) noexcept {
    const std::size_t bytes = memory.iteration.output_bytes * memory.iteration.batch;
    const copying copies = copying_of(bytes);
    if (copies == copying::apart) copy_responses<<<grid_for(bytes), block, 0, stream>>>(memory);
    const unsigned threads = copies == copying::within ? block : std::min(memory.iteration.batch, block);
    send_responses<<<1, threads, 0, stream>>>(service, memory, copies);
    return cudaGetLastError();
}

}  // namespace accel::cuda
