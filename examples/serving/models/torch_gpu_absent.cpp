// SPDX-License-Identifier: Apache-2.0
/// In the place of torch_gpu.cpp, in a build whose LibTorch is for the CPU, or without CUDA.
#include "serving/models/torch_gpu.hpp"

namespace accel::examples::serving {

result<std::unique_ptr<torch_gpu>> torch_gpu::open(std::int16_t) {
    return error{status::unsupported, 0,
                 "this build serves files on the CPU alone: for a GPU it needs nvcc (-DACCEL_CUDA=ON) and a PyTorch "
                 "with CUDA"};
}

}  // namespace accel::examples::serving
