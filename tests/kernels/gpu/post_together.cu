// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/post/batch.hpp"
#include "post_together.hpp"

#include <cstring>

#include <cuda_runtime.h>

namespace accel::tests {
namespace {

template <class Scope>
__global__ void post_batches(together what) {
    const std::uint32_t rank = Scope::rank();
    const std::uint32_t count = rank % 3;
    const std::uint32_t first = requests_below(rank);
    for (std::uint32_t i = 0; i < what.times; ++i) {
        const status outcome = bench::post<Scope>(what.queue, what.requests + first, count);
        if (i == 0 || outcome != status::ok) what.outcomes[rank] = outcome;
        Scope::meet();
        if (rank != 0) continue;
        if (!mlx5::release_to(what.queue, what.queue.state->reserved)) what.outcomes[rank] = status::protocol_error;
    }
}

}  // namespace

bool post_together(const together& what) {
    const dim3 threads(what.x, what.y, what.z);
    switch (what.who) {
        case gpu_scope::thread:
            post_batches<device::thread_scope><<<1, threads>>>(what);
            break;
        case gpu_scope::warp:
            post_batches<device::warp_scope><<<1, threads>>>(what);
            break;
        case gpu_scope::block:
            post_batches<device::block_scope><<<1, threads>>>(what);
            break;
    }
    return cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
}

void* shared_with_gpu(std::size_t bytes) {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess) return nullptr;
    std::memset(memory, 0, bytes);
    return memory;
}

void free_shared(void* memory) noexcept {
    static_cast<void>(cudaFreeHost(memory));
}

}  // namespace accel::tests
