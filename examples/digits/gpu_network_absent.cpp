// SPDX-License-Identifier: Apache-2.0
#include "digits/gpu_network.hpp"

/// In the place of gpu_network.cu and the kernels in a build without CUDA: there is never a network, and so
/// no call of its methods.
namespace accel::examples::digits {

struct gpu_network::state {};

gpu_network::gpu_network(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
gpu_network::gpu_network(gpu_network&&) noexcept = default;
gpu_network& gpu_network::operator=(gpu_network&&) noexcept = default;
gpu_network::~gpu_network() = default;

result<gpu_network> gpu_network::create(int, const network&, std::size_t) {
    return error{status::unsupported, 0, "this build is without CUDA; build where nvcc is found, with -DACCEL_CUDA=ON"};
}

gpu_scratch* gpu_network::scratch_for(CUstream_st*) noexcept {
    return nullptr;
}

void gpu_network::preprocess(CUstream_st*, const std::byte*, gpu_scratch*) const noexcept {}
void gpu_network::infer(CUstream_st*, const gpu_scratch*, std::byte*) const noexcept {}
void gpu_network::infer(CUstream_st*, const std::byte*, std::byte*, answer_form) const noexcept {}

const std::byte* gpu_network::tensor_of(const gpu_scratch*) noexcept {
    return nullptr;
}

}  // namespace accel::examples::digits
