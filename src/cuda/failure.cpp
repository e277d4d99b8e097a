// SPDX-License-Identifier: Apache-2.0
#include "cuda/failure.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace accel::cuda {

error call_failed(std::string_view what, int code) {
    const auto failure = static_cast<cudaError_t>(code);
    // So that the next call does not report this one again.
    (void)cudaGetLastError();
    status meaning = status::system_error;
    if (failure == cudaErrorMemoryAllocation) meaning = status::out_of_memory;
    if (failure == cudaErrorNotSupported) meaning = status::unsupported;
    if (is_fatal(code)) meaning = status::device_lost;
    return {meaning, code, fmt::format("{}: {} ({})", what, cudaGetErrorString(failure), cudaGetErrorName(failure))};
}

bool is_fatal(int code) noexcept {
    switch (static_cast<cudaError_t>(code)) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorAssert:
        case cudaErrorMpsClientTerminated:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorDevicesUnavailable:
        case cudaErrorContextIsDestroyed:
        case cudaErrorCudartUnloading:
#if CUDART_VERSION >= 13000
        case cudaErrorContained:
#endif
            return true;
        default:
            return false;
    }
}

}  // namespace accel::cuda
