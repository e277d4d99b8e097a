// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include <algorithm>
#include <cstring>

#include <cuda_runtime.h>

namespace accel::bench {
namespace {

constexpr unsigned block_threads = 256;
constexpr unsigned max_blocks = 264;

using word = unsigned long long;

__global__ void add_words(const word* words, std::size_t count, word* sum) {
    word mine = 0;
    const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) mine += words[i];
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_down_sync(0xffffffffU, mine, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

}  // namespace

void sum_on_gpu(CUstream_st* stream, std::span<const std::byte> request, std::span<std::byte> response) {
    const std::size_t count = request.size() / sizeof(word);
    const std::size_t wanted = (count + block_threads - 1) / block_threads;
    const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, max_blocks));
    cudaMemsetAsync(response.data(), 0, sizeof(word), stream);
    add_words<<<blocks, block_threads, 0, stream>>>(reinterpret_cast<const word*>(request.data()), count,
                                                    reinterpret_cast<word*>(response.data()));
}

std::uint64_t sum_of(std::span<const std::byte> words) noexcept {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at + sizeof sum <= words.size(); at += sizeof sum) {
        std::uint64_t next = 0;
        std::memcpy(&next, words.data() + at, sizeof next);
        sum += next;
    }
    return sum;
}

}  // namespace accel::bench
