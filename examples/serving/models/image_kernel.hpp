// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <cstddef>

struct CUstream_st;

namespace accel::examples::serving {

/// Makes a network's input out of a raw image, as image_math.hpp says, in one kernel: `image` is `from`, interleaved
/// bytes of any alignment; `input` gets 3 × `to` floats, planar. Both are memory of the stream's GPU, which is the
/// thread's current one. Does not wait. Returns a cudaError_t.
[[nodiscard]] int launch_image(CUstream_st* stream, const std::byte* image, const image_size& from, float* input,
                               const image_size& to) noexcept;

/// Brings the kernel to the current device, which the first launch would else do; a cudaError_t.
[[nodiscard]] int load_image_kernel() noexcept;

}  // namespace accel::examples::serving
