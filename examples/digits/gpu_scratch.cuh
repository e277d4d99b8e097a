// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digit_answer.hpp"
#include "digits/failure.hpp"
#include "digits/network.hpp"
#include "digits/preprocess_math.hpp"

#include <cstddef>

namespace accel::examples::digits {

/// What the kernels of one request leave for each other, in GPU memory. All zero at first; used by one
/// stream.
struct gpu_scratch {
    float grey[grid_cells];
    float tensor[tensor_values];
    failure refused;       ///< why there is no tensor
    unsigned blocks_done;  ///< zero again at the end of a kernel
};

/// Whole copies of 16 bytes bring it to a kernel.
struct alignas(16) gpu_parameters {
    network_parameters network;
};

/// Frame to tensor, both in GPU memory. Any alignment.
void launch_preprocess(CUstream_st* stream, const std::byte* frame, gpu_scratch* scratch) noexcept;

/// Tensor to answer. `refused`, unless null, says that there is no tensor. Any alignment.
void launch_network(CUstream_st* stream, const gpu_parameters* parameters, const std::byte* tensor,
                    const failure* refused, std::byte* answer, answer_form form) noexcept;

/// Brings the kernels to the current device, which the first launch would else do; a cudaError_t.
[[nodiscard]] int load_preprocess() noexcept;
[[nodiscard]] int load_network() noexcept;

}  // namespace accel::examples::digits
