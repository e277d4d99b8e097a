// SPDX-License-Identifier: Apache-2.0
#include "digits/gpu_scratch.cuh"
#include "digits/gpu_words.cuh"
#include "serving/models/digits_kernel.hpp"

#include <cuda_runtime.h>

namespace accel::examples::serving {
namespace {

constexpr std::uint32_t not_a_number = 0x7fc00000;

__global__ void tensor_kernel(const digits::gpu_scratch* scratch, unsigned char* tensor) {
    const bool refused = scratch->refused != digits::failure::none;
    digits::store_word(tensor + 4 * threadIdx.x,
                       refused ? not_a_number : __float_as_uint(scratch->tensor[threadIdx.x]));
}

}  // namespace

int launch_digits_tensor(CUstream_st* stream, const digits::gpu_scratch* scratch, std::byte* tensor) noexcept {
    tensor_kernel<<<1, digits::tensor_values, 0, stream>>>(scratch, reinterpret_cast<unsigned char*>(tensor));
    return cudaGetLastError();
}

int load_digits_kernel() noexcept {
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, tensor_kernel);
}

}  // namespace accel::examples::serving
