// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include "cuda/failure.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace accel::cuda {
namespace {

/// Null: the driver is older than the call.
template <class Function>
Function* entry_point(const char* name) noexcept {
    return reinterpret_cast<Function*>(find_entry_point(name));
}

error too_old(const char* call) {
    return {status::unsupported, 0, fmt::format("the CUDA driver lacks {}; use a newer driver", call)};
}

/// The calling thread's; null if it has none, or where the driver has not been used.
CUctx_st* current_context() noexcept {
    static auto* const call = entry_point<decltype(::cuCtxGetCurrent)>("cuCtxGetCurrent");
    CUcontext current = nullptr;
    if (call == nullptr || call(&current) != CUDA_SUCCESS) return nullptr;
    return current;
}

}  // namespace

void* find_entry_point(const char* name) noexcept {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult outcome{};
#if CUDART_VERSION >= 12050
    const auto code = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &outcome);
#else
    const auto code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &outcome);
#endif
    return code == cudaSuccess && outcome == cudaDriverEntryPointSuccess ? found : nullptr;
}

bool driver_loaded() noexcept {
    void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    ::dlclose(driver);
    return true;
}

// `cudaGetDevice` does not tell device 0 from none, and setting it would make a context there.
current_device::current_device(int ordinal) noexcept : before_(current_context()), code_(cudaSetDevice(ordinal)) {}

current_device::~current_device() {
    static auto* const call = entry_point<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent");
    if (call != nullptr) (void)call(before_);
}

result<allocation> find_allocation(std::uintptr_t address) {
    static auto* const call = entry_point<decltype(::cuMemGetAddressRange)>("cuMemGetAddressRange");
    if (call == nullptr) return too_old("cuMemGetAddressRange");
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    if (const CUresult code = call(&base, &bytes, address); code != CUDA_SUCCESS)
        return error{status::invalid_argument, static_cast<int>(code), "this address is not in a GPU allocation"};
    return allocation{static_cast<std::uintptr_t>(base), bytes};
}

result<int> export_dma_buf(std::uintptr_t begin, std::size_t bytes, bool pcie) {
    static auto* const call = entry_point<decltype(::cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange");
    if (call == nullptr) return too_old("cuMemGetHandleForAddressRange");
    unsigned long long flags = 0;
#if CUDA_VERSION >= 12080
    if (pcie) flags = CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
#else
    if (pcie) return too_old("mapping of dma-bufs over PCIe");
#endif
    int fd = -1;
    const CUresult code = call(&fd, begin, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);
    if (code != CUDA_SUCCESS) {
        return error{status::unsupported, static_cast<int>(code),
                     fmt::format("the CUDA driver cannot export this memory as a dma-buf (CUresult {}); that needs the "
                                 "driver's open kernel modules and Linux 5.12",
                                 static_cast<int>(code))};
    }
    return fd;
}

}  // namespace accel::cuda
