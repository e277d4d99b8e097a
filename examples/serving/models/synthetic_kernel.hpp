// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st;

namespace accel::examples::serving {

/// Sets `*sum` to the sum of the parts of synthetic_math.hpp. All are memory of the stream's GPU, which is the thread's
/// current one; payloads of any alignment, `sum` of 8. Does not wait. Returns a cudaError_t, as the others do.
[[nodiscard]] int launch_synthetic_sum(CUstream_st* stream, std::span<const std::byte> input,
                                       std::uint64_t* sum) noexcept;
/// Keeps the stream busy, and one thread of the GPU: so long, once all that were launched before have ended. So the
/// inferences of several streams of a process follow each other.
[[nodiscard]] int launch_spin(CUstream_st* stream, std::uint64_t nanoseconds) noexcept;
/// Fills the output as follows from the sum and the length of the input.
[[nodiscard]] int launch_synthetic_output(CUstream_st* stream, const std::uint64_t* sum, std::size_t input_bytes,
                                          std::span<std::byte> output) noexcept;

/// Brings the kernels to the current device, which the first launch would else do.
[[nodiscard]] int load_synthetic_kernels() noexcept;

}  // namespace accel::examples::serving
