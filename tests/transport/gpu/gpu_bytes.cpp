// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_bytes.hpp"

#include <cuda_runtime_api.h>

namespace accel::tests {

int gpu_count() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void copy_bytes(CUstream_st* stream, void* to, const void* from, std::size_t bytes) {
    if (stream != nullptr) {
        (void)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
        return;
    }
    (void)cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    // A copy from pageable memory may return before its last bytes have arrived.
    (void)cudaDeviceSynchronize();
}

}  // namespace accel::tests
