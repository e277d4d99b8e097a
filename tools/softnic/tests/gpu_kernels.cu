// SPDX-License-Identifier: Apache-2.0
#include "gpu_kernels.hpp"

#include <stdexcept>

#include <cuda_runtime.h>

namespace accel::softnic::testing::gpu {
namespace {

constexpr unsigned long long longest_wait_ns = 5'000'000'000;

void must(cudaError_t result) {
    if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

/// Non-blocking: the default stream would wait for everything on the device.
cudaStream_t stream_of_tests() {
    static const cudaStream_t made = [] {
        cudaStream_t stream = nullptr;
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return stream;
    }();
    return made;
}

unsigned long long* counter() {
    static unsigned long long* const made = [] {
        void* memory = nullptr;
        must(cudaMallocHost(&memory, 8));
        return static_cast<unsigned long long*>(memory);
    }();
    return made;
}

__device__ std::uint8_t pattern_at(std::uint32_t seed, std::uint64_t at) {
    std::uint64_t mixed = (at + 1) * 0x9e3779b97f4a7c15ull + seed * 0xc2b2ae3d27d4eb4full;
    mixed ^= mixed >> 29;
    mixed *= 0xbf58476d1ce4e5b9ull;
    return static_cast<std::uint8_t>(mixed >> 32);
}

__global__ void fill_kernel(std::uint8_t* memory, std::size_t size, std::uint32_t seed) {
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x)
        memory[at] = pattern_at(seed, at);
}

__global__ void set_kernel(std::uint8_t* memory, std::size_t size, std::uint8_t value) {
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x)
        memory[at] = value;
}

__global__ void wrong_kernel(const volatile std::uint8_t* memory, std::size_t size, std::uint32_t seed,
                             unsigned long long* wrong) {
    unsigned long long mine = 0;
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x)
        mine += memory[at] != pattern_at(seed, at);
    if (mine != 0) atomicAdd_system(wrong, mine);
}

__global__ void unlike_kernel(const volatile std::uint8_t* memory, std::size_t size, std::uint8_t value,
                              unsigned long long* wrong) {
    unsigned long long mine = 0;
    for (std::size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < size; at += gridDim.x * blockDim.x)
        mine += memory[at] != value;
    if (mine != 0) atomicAdd_system(wrong, mine);
}

__device__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ std::uint32_t load_acquire(const std::uint32_t* from) {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__global__ void reader_kernel(const std::uint32_t* flag, std::uint32_t value, const volatile std::uint8_t* data,
                              std::size_t size, std::uint32_t seed, reading* result) {
    __shared__ bool late;
    __shared__ unsigned long long wrong;
    if (threadIdx.x == 0) {
        const unsigned long long until = nanoseconds() + longest_wait_ns;
        late = wrong = 0;
        while (load_acquire(flag) != value && !late) late = nanoseconds() > until;
    }
    __syncthreads();
    unsigned long long mine = 0;
    for (std::size_t at = threadIdx.x; at < size; at += blockDim.x) mine += data[at] != pattern_at(seed, at);
    atomicAdd(&wrong, mine);
    __syncthreads();
    if (threadIdx.x != 0) return;
    volatile reading* out = result;
    out->wrong = wrong;
    out->timed_out = late ? 1 : 0;
    __threadfence_system();
    out->finished = 1;
}

__global__ void fault_kernel() {
    *reinterpret_cast<volatile int*>(16) = 1;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::size_t size, Arguments... arguments) {
    const auto blocks = static_cast<unsigned>(size / 65536 + 1);
    kernel<<<blocks, 256, 0, stream_of_tests()>>>(arguments...);
    must(cudaGetLastError());
    must(cudaStreamSynchronize(stream_of_tests()));
}

std::uint8_t* bytes(std::byte* memory) {
    return reinterpret_cast<std::uint8_t*>(memory);
}
const std::uint8_t* bytes(const std::byte* memory) {
    return reinterpret_cast<const std::uint8_t*>(memory);
}

}  // namespace

void fill(std::byte* memory, std::size_t size, std::uint32_t seed) {
    launch(&fill_kernel, size, bytes(memory), size, seed);
}

void set(std::byte* memory, std::size_t size, std::uint8_t value) {
    launch(&set_kernel, size, bytes(memory), size, value);
}

std::uint64_t count_wrong(const std::byte* memory, std::size_t size, std::uint32_t seed) {
    *counter() = 0;
    launch(&wrong_kernel, size, bytes(memory), size, seed, counter());
    return *counter();
}

std::uint64_t count_unlike(const std::byte* memory, std::size_t size, std::uint8_t value) {
    *counter() = 0;
    launch(&unlike_kernel, size, bytes(memory), size, value, counter());
    return *counter();
}

void start_reader(const std::uint32_t* flag, std::uint32_t value, const std::byte* data, std::size_t size,
                  std::uint32_t seed, reading* result) {
    reader_kernel<<<1, 256, 0, stream_of_tests()>>>(flag, value, bytes(data), size, seed, result);
    must(cudaGetLastError());
}

void fault() {
    fault_kernel<<<1, 1, 0, stream_of_tests()>>>();
    static_cast<void>(cudaStreamSynchronize(stream_of_tests()));
}

}  // namespace accel::softnic::testing::gpu
