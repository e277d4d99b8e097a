// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

struct allocation {
    std::uint64_t address = 0;  ///< what the program has; cannot be read or written
    void* inside = nullptr;     ///< the same bytes, for tests to look at
    std::size_t size = 0;
    bool of_a_context = false;  ///< as of cudaMalloc; else as of a pool, which belongs to none
};

}  // namespace fake_cuda

extern "C" {
__attribute__((visibility("default"))) void fake_cuda_allocate(std::size_t size, fake_cuda::allocation* made);
/// From now on every copy fails.
__attribute__((visibility("default"))) void fake_cuda_fail();
/// While it is full, no kernel begins.
__attribute__((visibility("default"))) void fake_cuda_fill(bool now);
/// Copies by calls of the driver, and jobs of the copy kernel.
__attribute__((visibility("default"))) void fake_cuda_count(std::size_t* by_driver, std::size_t* by_kernels);
}
