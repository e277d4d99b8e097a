// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

struct CUstream_st;

namespace accel::tests {

/// 0 without a GPU or driver.
[[nodiscard]] int gpu_count();
/// Between any two memories. Behind the stream's other work; or, without one, at once and for good.
void copy_bytes(CUstream_st* stream, void* to, const void* from, std::size_t bytes);

}  // namespace accel::tests
