// SPDX-License-Identifier: Apache-2.0
// In the place of libcuda.so.1, for machines without a GPU: "device memory" is memory whose addresses the
// program cannot use, and copies are done at once. Only what libsoftnic_cuda.so calls; a thread does what its copy
// kernel does, when the GPU has room for it.
#include "fake_cuda.hpp"

#include "gpu/lane.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using fake_cuda::allocation;

std::array<allocation, 64> allocations;
std::atomic<std::size_t> count{0};
std::atomic<bool> failed{false};

char* real_memory(CUdeviceptr at, std::size_t size) {
    for (std::size_t index = 0; index < count; ++index) {
        const allocation& one = allocations[index];
        if (at >= one.address && at + size <= one.address + one.size)
            return static_cast<char*>(one.inside) + (at - one.address);
    }
    return nullptr;
}

const allocation* find(CUdeviceptr at) {
    for (std::size_t index = 0; index < count; ++index)
        if (at >= allocations[index].address && at < allocations[index].address + allocations[index].size)
            return &allocations[index];
    return nullptr;
}

std::atomic<bool> full{false};
std::atomic<std::size_t> copies{0};
std::atomic<std::size_t> kernel_jobs{0};

CUresult copy(void* to, const void* from, std::size_t size) {
    if (failed || to == nullptr || from == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memcpy(to, from, size);
    ++copies;
    return CUDA_SUCCESS;
}

namespace gpu = accel::softnic::gpu;
using job_content = std::array<std::uint32_t, gpu::content_words>;

void do_job(gpu::lane_memory& lane, const job_content& content) {
    const auto pair = [&](std::size_t at) { return content[at] | std::uint64_t{content[at + 1]} << 32; };
    const std::size_t size = content[0] >> gpu::size_shift;
    char* const there = real_memory(pair(1), size);
    auto* const here = reinterpret_cast<void*>(pair(3));
    std::uint64_t word = 0;
    switch (static_cast<gpu::action>(content[0] & 7)) {
        case gpu::action::write:
            std::memcpy(there, (content[0] & gpu::in_line_bit) != 0 ? &content[3] : here, size);
            break;
        case gpu::action::read:
            std::memcpy(here, there, size);
            break;
        default:  // fetch and add
            std::memcpy(&word, there, sizeof word);
            lane.previous = std::exchange(word, word + pair(3));
            std::memcpy(there, &word, sizeof word);
    }
    ++kernel_jobs;
}

/// As softnic_copy of copy_kernel.cu.
void run_kernel(gpu::lane_memory& lane, std::uint32_t service, std::chrono::nanoseconds idle) {
    const auto wait = [&](const auto& until) {
        const auto end = std::chrono::steady_clock::now() + idle;
        while (!until() && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        return until();
    };
    while (full) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic_ref(lane.begun).store(service, std::memory_order_release);
    if (wait([&] { return std::atomic_ref(lane.granted).load(std::memory_order_acquire) == service; })) {
        std::uint32_t number = std::atomic_ref(lane.first).load(std::memory_order_relaxed);
        job_content content{};
        for (; wait([&] { return gpu::take_job(lane, number, content); }); ++number) {
            do_job(lane, content);
            gpu::finish_job(lane, number);
        }
    }
    gpu::leave(lane, service);
}

template <class T>
T handle() {
    static int something = 0;
    return reinterpret_cast<T>(&something);
}

}  // namespace

void fake_cuda_allocate(std::size_t size, allocation* result) {
    const int file = ::memfd_create("device", MFD_CLOEXEC);
    allocation made;
    made.size = size;
    made.of_a_context = count % 2 != 0;
    if (::ftruncate(file, static_cast<off_t>(size)) != 0) std::abort();
    made.address = reinterpret_cast<std::uint64_t>(::mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0));
    made.inside = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    allocations[count] = made;
    ++count;
    *result = made;
}

void fake_cuda_fail() {
    failed = true;
}
void fake_cuda_fill(bool now) {
    full = now;
}
void fake_cuda_count(std::size_t* by_driver, std::size_t* by_kernels) {
    *by_driver = copies;
    *by_kernels = kernel_jobs;
}

CUresult cuGetErrorName(CUresult, const char** name) {
    *name = "CUDA_ERROR_OF_THE_FAKE";
    return CUDA_SUCCESS;
}

/// As the real one: what it does not know is no error, and has no type.
CUresult cuPointerGetAttributes(unsigned number, CUpointer_attribute* wanted, void** values, CUdeviceptr at) {
    const allocation* found = find(at);
    for (unsigned index = 0; index < number; ++index) {
        switch (wanted[index]) {
            case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *static_cast<unsigned*>(values[index]) = found != nullptr ? CU_MEMORYTYPE_DEVICE : 0;
                break;
            case CU_POINTER_ATTRIBUTE_CONTEXT:
                *static_cast<CUcontext*>(values[index]) =
                    found != nullptr && found->of_a_context ? handle<CUcontext>() : nullptr;
                break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *static_cast<int*>(values[index]) = found != nullptr ? 0 : -2;
                break;
            case CU_POINTER_ATTRIBUTE_IS_MANAGED:
                *static_cast<unsigned*>(values[index]) = 0;
                break;
            case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                *static_cast<CUdeviceptr*>(values[index]) = found != nullptr ? found->address : 0;
                break;
            case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                *static_cast<std::size_t*>(values[index]) = found != nullptr ? found->size : 0;
                break;
            default:
                return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* name, int size, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(size), "fake-%d", ::getpid());
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    *context = handle<CUcontext>();
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) {
    return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
    *lowest = *highest = 0;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void*) {
    *module = handle<CUmodule>();
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
    *function = handle<CUfunction>();
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
    *value = 1024;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void** arguments, void**) {
    auto* const lane = *static_cast<gpu::lane_memory**>(arguments[0]);
    const auto service = *static_cast<std::uint32_t*>(arguments[1]);
    const std::chrono::nanoseconds idle(*static_cast<unsigned long long*>(arguments[2]));
    std::thread([lane, service, idle] { run_kernel(*lane, service, idle); }).detach();
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** memory, std::size_t size, unsigned) {
    *memory = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return *memory != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
    *stream = handle<CUstream>();
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream) {
    return failed ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t size, CUstream) {
    return copy(real_memory(to, size), from, size);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t size, CUstream) {
    return copy(to, real_memory(from, size), size);
}
