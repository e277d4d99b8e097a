// SPDX-License-Identifier: Apache-2.0
#include "serving/models/synthetic_kernel.hpp"
#include "serving/models/synthetic_math.hpp"

#include <algorithm>

#include <cuda_runtime.h>

namespace accel::examples::serving {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned warp = 32;
constexpr std::size_t max_blocks = 512;

using counter = unsigned long long;  ///< as atomicAdd takes it
static_assert(sizeof(counter) == sizeof(std::uint64_t));

__device__ bool holds_words(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory) % sizeof(std::uint64_t) == 0;
}

__device__ std::size_t first_word() {
    return std::size_t{blockIdx.x} * threads + threadIdx.x;
}

__device__ std::uint64_t load(const std::byte* input, std::size_t bytes, std::size_t at, bool aligned) {
    if (aligned && (at + 1) * sizeof(std::uint64_t) <= bytes) return reinterpret_cast<const std::uint64_t*>(input)[at];
    return synthetic_word(input, bytes, at);
}

__device__ void store(std::byte* output, std::size_t bytes, std::size_t at, bool aligned, std::uint64_t word) {
    const std::size_t begin = at * sizeof word;
    if (aligned && begin + sizeof word <= bytes) {
        reinterpret_cast<std::uint64_t*>(output)[at] = word;
        return;
    }
    for (std::size_t i = 0; i < sizeof word && begin + i < bytes; ++i)
        output[begin + i] = static_cast<std::byte>(word >> (8 * i));
}

__global__ void __launch_bounds__(threads) sum_kernel(const std::byte* input, std::size_t bytes, counter* sum) {
    const std::size_t words = synthetic_words(bytes);
    const bool aligned = holds_words(input);
    counter mine = 0;
    for (std::size_t at = first_word(); at < words; at += std::size_t{gridDim.x} * threads)
        mine += synthetic_part(load(input, bytes, at, aligned), at);
    for (unsigned apart = warp / 2; apart > 0; apart /= 2) mine += __shfl_down_sync(~0U, mine, apart);
    if (threadIdx.x % warp == 0) atomicAdd(sum, mine);
}

__device__ std::uint64_t now() {
    std::uint64_t time = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

/// When the last inference that has begun will have ended.
__device__ counter free_from;

/// When work of this length, given now, will have been done.
__device__ std::uint64_t take(std::uint64_t nanoseconds) {
    const counter begin = now();
    counter seen = atomicAdd(&free_from, 0);
    for (;;) {
        const counter end = (seen > begin ? seen : begin) + nanoseconds;
        const counter before = atomicCAS(&free_from, seen, end);
        if (before == seen) return end;
        seen = before;
    }
}

__global__ void spin_kernel(std::uint64_t nanoseconds) {
    const std::uint64_t end = take(nanoseconds);
    while (now() < end) __nanosleep(100);
}

__global__ void __launch_bounds__(threads)
    output_kernel(const std::uint64_t* sum, std::size_t input_bytes, std::byte* output, std::size_t bytes) {
    const std::uint64_t hash = synthetic_hash(*sum, input_bytes);
    const std::size_t words = synthetic_words(bytes);
    const bool aligned = holds_words(output);
    for (std::size_t at = first_word(); at < words; at += std::size_t{gridDim.x} * threads)
        store(output, bytes, at, aligned, synthetic_output(hash, at));
}

unsigned blocks_for(std::size_t bytes) {
    const std::size_t blocks = (synthetic_words(bytes) + threads - 1) / threads;
    return static_cast<unsigned>(std::clamp(blocks, std::size_t{1}, max_blocks));
}

}  // namespace

int launch_synthetic_sum(CUstream_st* stream, std::span<const std::byte> input, std::uint64_t* sum) noexcept {
    if (const auto code = cudaMemsetAsync(sum, 0, sizeof *sum, stream); code != cudaSuccess) return code;
    sum_kernel<<<blocks_for(input.size()), threads, 0, stream>>>(input.data(), input.size(),
                                                                 reinterpret_cast<counter*>(sum));
    return cudaGetLastError();
}

int launch_spin(CUstream_st* stream, std::uint64_t nanoseconds) noexcept {
    spin_kernel<<<1, 1, 0, stream>>>(nanoseconds);
    return cudaGetLastError();
}

int launch_synthetic_output(CUstream_st* stream, const std::uint64_t* sum, std::size_t input_bytes,
                            std::span<std::byte> output) noexcept {
    output_kernel<<<blocks_for(output.size()), threads, 0, stream>>>(sum, input_bytes, output.data(), output.size());
    return cudaGetLastError();
}

int load_synthetic_kernels() noexcept {
    cudaFuncAttributes loaded{};
    for (const void* each : {reinterpret_cast<const void*>(sum_kernel), reinterpret_cast<const void*>(spin_kernel),
                             reinterpret_cast<const void*>(output_kernel)})
        if (const auto code = cudaFuncGetAttributes(&loaded, each); code != cudaSuccess) return code;
    return cudaSuccess;
}

}  // namespace accel::examples::serving
