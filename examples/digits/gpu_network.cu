// SPDX-License-Identifier: Apache-2.0
#include "digits/gpu_network.hpp"
#include "digits/gpu_scratch.cuh"

#include <atomic>
#include <string>
#include <utility>

#include <cuda_runtime.h>

namespace accel::examples::digits {
namespace {

error failed(const std::string& what, cudaError_t code) {
    (void)cudaGetLastError();
    status meaning = status::unsupported;
    if (code == cudaErrorMemoryAllocation) meaning = status::out_of_memory;
    return {meaning, static_cast<int>(code), what + ": " + cudaGetErrorString(code)};
}

}  // namespace

struct gpu_network::state {
    int device = 0;
    gpu_parameters* parameters = nullptr;
    gpu_scratch* scratches = nullptr;
    std::size_t streams = 0;
    std::unique_ptr<std::atomic<CUstream_st*>[]> owners;

    state() = default;
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
        (void)cudaSetDevice(device);
        (void)cudaFree(scratches);
        (void)cudaFree(parameters);
    }
    [[nodiscard]] cudaError_t fill(const network& model);
};

/// On a stream of its own, which waits for nobody else's kernels.
cudaError_t gpu_network::state::fill(const network& model) {
    const gpu_parameters ours{model.parameters()};
    const std::size_t scratch_bytes = streams * sizeof(gpu_scratch);
    cudaStream_t stream = nullptr;
    cudaError_t code = cudaMalloc(&parameters, sizeof ours);
    if (code == cudaSuccess) code = cudaMalloc(&scratches, scratch_bytes);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaMemsetAsync(scratches, 0, scratch_bytes, stream);
    if (code == cudaSuccess) code = cudaMemcpyAsync(parameters, &ours, sizeof ours, cudaMemcpyDefault, stream);
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    return code;
}

gpu_network::gpu_network(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
gpu_network::gpu_network(gpu_network&&) noexcept = default;
gpu_network& gpu_network::operator=(gpu_network&&) noexcept = default;
gpu_network::~gpu_network() = default;

result<gpu_network> gpu_network::create(int device, const network& model, std::size_t streams) {
    const std::string name = "cuda:" + std::to_string(device);
    if (const auto code = cudaSetDevice(device); code != cudaSuccess) return failed(name + " cannot be used", code);
    auto made = std::make_unique<state>();
    made->device = device;
    made->streams = streams;
    made->owners = std::make_unique<std::atomic<CUstream_st*>[]>(streams);
    for (const auto code : {load_preprocess(), load_network()})
        if (code != cudaSuccess)
            return failed(name + " cannot run the kernels of this build", static_cast<cudaError_t>(code));
    if (const auto code = made->fill(model); code != cudaSuccess)
        return failed(name + " has no room for the network", code);
    return gpu_network{std::move(made)};
}

gpu_scratch* gpu_network::scratch_for(CUstream_st* stream) noexcept {
    for (std::size_t i = 0; i < state_->streams; ++i) {
        auto& owner = state_->owners[i];
        CUstream_st* seen = owner.load(std::memory_order_relaxed);
        if (seen == nullptr && owner.compare_exchange_strong(seen, stream, std::memory_order_relaxed)) seen = stream;
        if (seen == stream) return state_->scratches + i;
    }
    return nullptr;
}

void gpu_network::preprocess(CUstream_st* stream, const std::byte* frame, gpu_scratch* scratch) const noexcept {
    launch_preprocess(stream, frame, scratch);
}

void gpu_network::infer(CUstream_st* stream, const gpu_scratch* scratch, std::byte* answer) const noexcept {
    launch_network(stream, state_->parameters, tensor_of(scratch), &scratch->refused, answer, answer_form::whole);
}

void gpu_network::infer(CUstream_st* stream, const std::byte* tensor, std::byte* answer,
                        answer_form form) const noexcept {
    launch_network(stream, state_->parameters, tensor, nullptr, answer, form);
}

const std::byte* gpu_network::tensor_of(const gpu_scratch* scratch) noexcept {
    return reinterpret_cast<const std::byte*>(scratch->tensor);
}

}  // namespace accel::examples::digits
