// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

struct CUstream_st;

namespace accel::examples::digits {
struct gpu_scratch;
}

namespace accel::examples::serving {

/// Copies the tensor that the preprocessing left in its scratch memory; of a refused frame it gives values that are no
/// numbers, which the network refuses in turn. Does not wait. Returns a cudaError_t.
[[nodiscard]] int launch_digits_tensor(CUstream_st* stream, const digits::gpu_scratch* scratch,
                                       std::byte* tensor) noexcept;

/// Brings the kernel to the current device; a cudaError_t.
[[nodiscard]] int load_digits_kernel() noexcept;

}  // namespace accel::examples::serving
