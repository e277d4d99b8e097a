// SPDX-License-Identifier: Apache-2.0
/// In the place of the models on a GPU, in a build without CUDA.
#include "serving/models/gpu_models.hpp"

namespace accel::examples::serving {
namespace {

error no_cuda() {
    return {status::unsupported, 0, "this build is without CUDA; build where nvcc is found, with -DACCEL_CUDA=ON"};
}

}  // namespace

void use_all_gpu_queues() noexcept {}

result<std::unique_ptr<model>> load_digits_gpu(std::int16_t) {
    return no_cuda();
}

result<std::unique_ptr<model>> load_synthetic_gpu(const model_shapes&, double, std::int16_t) {
    return no_cuda();
}

result<std::unique_ptr<model>> replay_graphs(std::unique_ptr<model>&) {
    return no_cuda();
}

}  // namespace accel::examples::serving
