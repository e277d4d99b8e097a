// SPDX-License-Identifier: Apache-2.0
#include "serving/models/image_kernel.hpp"
#include "serving/models/image_math.hpp"

#include <cuda_runtime.h>

namespace accel::examples::serving {
namespace {

constexpr unsigned block_columns = 32;
constexpr unsigned block_rows = 8;

/// A thread makes all three values of a pixel: the threads of a warp write one stretch of each plane, and share the
/// rows that they read.
__global__ void __launch_bounds__(block_columns* block_rows)
    image_kernel(const unsigned char* __restrict__ image, image_size from, float* __restrict__ input, image_size to) {
    const unsigned column = blockIdx.x * block_columns + threadIdx.x;
    const unsigned row = blockIdx.y * block_rows + threadIdx.y;
    if (column >= to.width || row >= to.height) return;
    const std::size_t plane = std::size_t{to.height} * to.width;
    float* const out = input + std::size_t{row} * to.width + column;
    for (int channel = 0; channel < image_channels; ++channel)
        out[static_cast<std::size_t>(channel) * plane] =
            input_value(image, from, to, channel, static_cast<int>(row), static_cast<int>(column));
}

constexpr unsigned parts_of(unsigned whole, unsigned part) {
    return (whole + part - 1) / part;
}

}  // namespace

int launch_image(CUstream_st* stream, const std::byte* image, const image_size& from, float* input,
                 const image_size& to) noexcept {
    const dim3 grid{parts_of(to.width, block_columns), parts_of(to.height, block_rows)};
    image_kernel<<<grid, dim3{block_columns, block_rows}, 0, stream>>>(reinterpret_cast<const unsigned char*>(image),
                                                                       from, input, to);
    return cudaGetLastError();
}

int load_image_kernel() noexcept {
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, image_kernel);
}

}  // namespace accel::examples::serving
