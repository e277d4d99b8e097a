// SPDX-License-Identifier: Apache-2.0
#include "serving/models/gpu_memory.hpp"

#include <string>
#include <utility>

#include <cuda_runtime.h>

namespace accel::examples::serving {

result<void> cuda_result(const char* what, int code) {
    const auto native = static_cast<cudaError_t>(code);
    if (native == cudaSuccess) return {};
    (void)cudaGetLastError();
    const status meaning = native == cudaErrorMemoryAllocation ? status::out_of_memory : status::unsupported;
    return error{meaning, code, std::string{what} + ": " + cudaGetErrorString(native)};
}

result<void> launched(const char* what) {
    return cuda_result(what, cudaGetLastError());
}

result<void> use_gpu(std::int16_t gpu) {
    const std::string what = "cuda:" + std::to_string(gpu) + " cannot be used";
    return cuda_result(what.c_str(), cudaSetDevice(gpu));
}

void gpu_release::operator()(std::byte* memory) const noexcept {
    (void)cudaFree(memory);
}

result<gpu_memory> allocate_on_gpu(std::size_t bytes) {
    void* memory = nullptr;
    if (auto got = cuda_result("the GPU has no memory left", cudaMalloc(&memory, bytes)); !got) return got.error();
    return gpu_memory{static_cast<std::byte*>(memory)};
}

}  // namespace accel::examples::serving
