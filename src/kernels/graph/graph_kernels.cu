// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph/graph_kernels.hpp"

#include <algorithm>

namespace accel::gpu {
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
        accel::device::detail::copy_in(memory, memory.state->count, threadIdx.x, blockDim.x);
        __syncthreads();
    }
    if (threadIdx.x == 0) accel::device::detail::mark_point(memory, iteration_point::copied_in);
}

__global__ void copy_requests(accel::device::detail::graph_memory memory) {
    accel::device::detail::copy_in(memory, memory.state->count, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                                   std::uint64_t{gridDim.x} * blockDim.x);
    __syncthreads();
    if (threadIdx.x != 0) return;
    auto* const copied = &memory.state->reached[static_cast<std::uint32_t>(iteration_point::copied_in)];
    atomicMax(reinterpret_cast<unsigned long long*>(copied),
              static_cast<unsigned long long>(accel::device::clock_ns()));
}

__global__ void copy_responses(accel::device::detail::graph_memory memory) {
    if (blockIdx.x == 0 && threadIdx.x == 0) accel::device::detail::mark_point(memory, iteration_point::worked);
    accel::device::detail::copy_out(memory, memory.state->count, std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x,
                                    std::uint64_t{gridDim.x} * blockDim.x);
}

__global__ void send_responses(accel::device::service_ref service, accel::device::detail::graph_memory memory,
                               copying copies) {
    if (copies != copying::apart && threadIdx.x == 0)
        accel::device::detail::mark_point(memory, iteration_point::worked);
    if (copies == copying::within) {
        accel::device::detail::copy_out(memory, memory.state->count, threadIdx.x, blockDim.x);
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

// Where each session has one owner. What a step works on is brought to shared memory at once, by all threads: read
// field by field from the GPU's memory, each field is a wait of its own.

constexpr unsigned warp = 32;
/// Requests of an iteration that fit there.
constexpr std::uint32_t max_near = 4;

/// By `threads` threads, of which the caller is number `rank`.
template <class Object>
__device__ void bring(Object* to, const Object* from, std::uint32_t count, unsigned rank, unsigned threads) {
    accel::device::detail::copy_bytes(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                                      count * sizeof(Object), rank, threads);
}

/// By the first warp.
__device__ accel::device::detail::gathered wait_as_owner(const accel::device::service_ref& service,
                                                         const accel::device::detail::graph_memory& memory,
                                                         accel::device::owned_sessions& mine) {
    using accel::device::warp_scope;
    constexpr std::int64_t second = 1'000'000'000;
    accel::device::detail::gathered found;
    const status owns = accel::device::detail::by_first_of<warp_scope>(
        [&] { return accel::device::detail::own_part(service, memory, mine) ? status::ok : status::unsupported; });
    found.stopped = owns != status::ok;
    while (found.count == 0 && !found.stopped)
        found = accel::device::detail::gather_owned<warp_scope>(mine, memory, second);
    return found;
}

/// The first warp waits. Then all threads bring what it has found back to the GPU's memory, for the nodes behind; those
/// that copy requests begin at the other end.
__global__ void gather_owned_requests(accel::device::service_ref service, accel::device::detail::graph_memory memory,
                                      copying copies) {
    __shared__ accel::device::owned_sessions mine;
    __shared__ accel::device::exchange_ref exchanges[max_near];
    __shared__ std::uint32_t count;
    accel::device::detail::graph_memory near = memory;
    if (memory.iteration.batch <= max_near) near.exchanges = exchanges;
    bring(&mine, memory.owned, 1, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x < warp) {
        const auto found = wait_as_owner(service, near, mine);
        if (threadIdx.x == 0) {
            count = found.count;
            accel::device::detail::tell_gathered(memory, found);
        }
    }
    __syncthreads();
    const unsigned from_behind = blockDim.x - 1 - threadIdx.x;
    if (from_behind == 0) accel::device::detail::mark_point(memory, iteration_point::taken);
    if (copies == copying::within) accel::device::detail::copy_in(near, count, threadIdx.x, blockDim.x);
    if (memory.exchanges != near.exchanges) bring(memory.exchanges, exchanges, count, from_behind, blockDim.x);
    bring(memory.owned, &mine, 1, from_behind, blockDim.x);
    if (from_behind == 0) accel::device::detail::mark_point(memory, iteration_point::copied_in);
}

/// Each warp brings something else: all of it is under way together.
__device__ void bring_near(const accel::device::detail::graph_memory& memory,
                           const accel::device::detail::graph_memory& near, accel::device::owned_sessions& mine) {
    constexpr unsigned half = block / 2;
    constexpr unsigned eighth = block / 8;
    const unsigned rank = threadIdx.x;
    if (rank < half)
        bring(&mine, memory.owned, 1, rank, half);
    else if (memory.exchanges == near.exchanges)
        return;
    else if (rank < block - eighth)
        bring(near.exchanges, memory.exchanges, memory.iteration.batch, rank - half, half - eighth);
    else
        bring(near.iteration.answers, memory.iteration.answers, memory.iteration.batch, rank - (block - eighth),
              eighth);
}

/// Two parts of the block: the first warp answers. The last one launches the graph anew meanwhile: the launch is ready
/// when the graph ends.
__global__ void send_owned_responses(accel::device::detail::graph_memory memory, copying copies) {
    __shared__ accel::device::owned_sessions mine;
    __shared__ accel::device::exchange_ref exchanges[max_near];
    __shared__ accel::device::iteration_answer answers[max_near];
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();  // the node may have been launched early
#endif
    const bool last = threadIdx.x == blockDim.x - 1;
    if (last && copies != copying::apart) accel::device::detail::mark_point(memory, iteration_point::worked);
    const std::uint32_t count = memory.state->count;
    const bool goes_on = memory.state->stopped == 0;
    accel::device::detail::graph_memory near = memory;
    if (memory.iteration.batch <= max_near) {
        near.exchanges = exchanges;
        near.iteration.answers = answers;
    }
    bring_near(memory, near, mine);
    __syncthreads();
    if (copies == copying::within) accel::device::detail::copy_out(near, count, threadIdx.x, blockDim.x);
    if (last) accel::device::detail::mark_point(memory, iteration_point::copied_out);
    __syncthreads();
    if (last && goes_on) (void)cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
    if (threadIdx.x >= warp) return;
    if (threadIdx.x == 0) {
        accel::device::detail::end_owned_requests(mine, near, count);
        accel::device::detail::count_iteration(near);
    }
    __syncwarp();
    bring(memory.owned, &mine, 1, threadIdx.x, warp);
}

unsigned grid_for(std::size_t bytes) {
    return static_cast<unsigned>(std::clamp<std::size_t>(bytes / bytes_a_block, 1, max_blocks));
}

}  // namespace

int begin_iteration(CUstream_st* stream, const accel::device::service_ref& service,
                    const accel::device::detail::graph_memory& memory) noexcept {
    const std::size_t bytes = memory.iteration.input_bytes * memory.iteration.batch;
    const copying copies = copying_of(bytes);
    if (memory.owned != nullptr)
        gather_owned_requests<<<1, block, 0, stream>>>(service, memory, copies);
    else
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
    if (memory.owned != nullptr)
        send_owned_responses<<<1, block, 0, stream>>>(memory, copies);
    else
        send_responses<<<1, threads, 0, stream>>>(service, memory, copies);
    return cudaGetLastError();
}

const void* waiting_kernel(const accel::device::detail::graph_memory& memory) noexcept {
    return memory.owned != nullptr ? reinterpret_cast<const void*>(send_owned_responses) : nullptr;
}

}  // namespace accel::gpu
