// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <cuda.h>

namespace accel::softnic::gpu {

/// The calls of the CUDA driver that are used here. Found in the driver that the program has loaded: a
/// process that has none has no GPU memory either.
struct driver {
#define SOFTNIC_DRIVER_CALLS(each)                                                                               \
    each(cuGetErrorName) each(cuPointerGetAttributes) each(cuDeviceGet) each(cuDevicePrimaryCtxRetain)           \
        each(cuCtxSetCurrent) each(cuCtxGetStreamPriorityRange) each(cuModuleLoadData) each(cuModuleGetFunction) \
            each(cuMemHostAlloc) each(cuStreamCreateWithPriority) each(cuStreamQuery) each(cuLaunchKernel)       \
                each(cuMemcpyHtoDAsync) each(cuMemcpyDtoHAsync) each(cuFuncGetAttribute) each(cuDeviceGetPCIBusId)
#define SOFTNIC_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
    SOFTNIC_DRIVER_CALLS(SOFTNIC_DRIVER_MEMBER)
#undef SOFTNIC_DRIVER_MEMBER

    /// Null, if the process has no driver or one without these calls.
    static const driver* get();
    [[nodiscard]] std::string name_of(CUresult result) const;
};

/// What an address is, of a GPU's memory.
struct gpu_range {
    CUcontext context = nullptr;  ///< null for memory that belongs to none
    int device = -1;
};

/// True, and where it is, if all of [address, address + size) is memory of one GPU. Not of managed memory.
[[nodiscard]] bool find_gpu_range(const driver& calls, std::uint64_t address, std::uint64_t size, gpu_range& found);

}  // namespace accel::softnic::gpu
