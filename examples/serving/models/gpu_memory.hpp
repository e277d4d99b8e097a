// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace accel::examples::serving {

/// What a call of CUDA came to, a cudaError_t; `what` says what was wanted, in the error's sentence.
[[nodiscard]] result<void> cuda_result(const char* what, int code);

/// What launches of this thread came to that say nothing themselves.
[[nodiscard]] result<void> launched(const char* what);

/// Makes this GPU the thread's current one. `unsupported`: it cannot be used; the sentence says why.
[[nodiscard]] result<void> use_gpu(std::int16_t gpu);

/// Frees memory of a GPU, which may wait for all that runs there.
struct gpu_release {
    void operator()(std::byte* memory) const noexcept;
};
using gpu_memory = std::unique_ptr<std::byte, gpu_release>;

/// Memory of the thread's current GPU, aligned to 256. May block.
[[nodiscard]] result<gpu_memory> allocate_on_gpu(std::size_t bytes);

}  // namespace accel::examples::serving
