// SPDX-License-Identifier: Apache-2.0
#include "gpu/faulty_kernel.hpp"

#include <cstdint>

#include <cuda_runtime.h>

namespace accel::tests {
namespace {

__global__ void write_to(std::uintptr_t nowhere) {
    *reinterpret_cast<volatile int*>(nowhere) = 1;
}

__global__ void sleep_for(unsigned milliseconds) {
    for (unsigned i = 0; i < milliseconds; ++i) __nanosleep(1'000'000);
}

}  // namespace

void launch_faulty_kernel(CUstream_st* stream) {
    write_to<<<1, 1, 0, stream>>>(8);
}

void launch_slow_kernel(CUstream_st* stream, unsigned milliseconds) {
    sleep_for<<<1, 1, 0, stream>>>(milliseconds);
}

}  // namespace accel::tests
