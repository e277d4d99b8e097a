// SPDX-License-Identifier: Apache-2.0
#include "cuda/current_device.hpp"

#include "cuda/driver.hpp"

#include <cuda_runtime_api.h>

namespace accel::cuda {

// `cudaGetDevice` does not tell device 0 from none, and setting it would make a context there.
current_device::current_device(int ordinal) noexcept : before_(current_context()), code_(cudaSetDevice(ordinal)) {}

current_device::~current_device() {
    set_current_context(before_);
}

}  // namespace accel::cuda
