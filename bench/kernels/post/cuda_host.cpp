// SPDX-License-Identifier: Apache-2.0
#include "cuda_host.hpp"

#include <chrono>
#include <string>
#include <thread>

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace accel::bench {
namespace {

constexpr std::uintptr_t page_bytes = 4096;

}  // namespace

result<void> cuda_done(int code, const char* what) {
    const auto failure = static_cast<cudaError_t>(code);
    if (failure == cudaSuccess) return {};
    // Not to be told again by the next call.
    static_cast<void>(cudaGetLastError());
    return error{status::system_error, code, fmt::format("{}: {}", what, cudaGetErrorString(failure))};
}

void cuda_memory::deleter::operator()(std::byte* memory) const noexcept {
    static_cast<void>(where == memory_place::gpu ? cudaFree(memory) : cudaFreeHost(memory));
}

result<cuda_memory> cuda_memory::allocate(memory_place where, std::size_t bytes) {
    void* made = nullptr;
    const cudaError_t code = where == memory_place::gpu
                                 ? cudaMalloc(&made, bytes)
                                 : cudaHostAlloc(&made, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
    if (auto done = cuda_done(code, "memory for rings"); !done) return done.error();
    cuda_memory out;
    out.memory_ = {static_cast<std::byte*>(made), deleter{where}};
    out.bytes_ = bytes;
    if (auto done = out.clear(); !done) return done.error();
    return out;
}

result<void> cuda_memory::clear() noexcept {
    if (auto done = cuda_done(cudaMemset(memory_.get(), 0, bytes_), "clearing"); !done) return done.error();
    return cuda_done(cudaDeviceSynchronize(), "clearing");
}

result<void> wait_for(CUstream_st* stream, std::uint32_t* abort, unsigned patience_ms) {
    using clock = std::chrono::steady_clock;
    const auto patience = clock::now() + std::chrono::milliseconds{patience_ms};
    const auto given_up = patience + std::chrono::seconds{1};
    for (;;) {
        const cudaError_t code = cudaStreamQuery(stream);
        if (code != cudaErrorNotReady) return cuda_done(code, "a kernel");
        const auto now = clock::now();
        if (now > patience) *const_cast<volatile std::uint32_t*>(abort) = 1;
        if (now > given_up) return error{status::timed_out, 0, "a kernel did not end when told to"};
        std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
}

registered_pages::~registered_pages() {
    // The address is CUDA's only name for a page.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    for (const std::uintptr_t page : ours_) static_cast<void>(cudaHostUnregister(reinterpret_cast<void*>(page)));
}

result<void> registered_pages::add_page(std::uintptr_t page, bool registers) {
    if (ours_.contains(page)) return {};
    void* const host = reinterpret_cast<void*>(page);  // NOLINT(performance-no-int-to-ptr)
    constexpr unsigned plain = cudaHostRegisterMapped | cudaHostRegisterPortable;
    cudaError_t code = cudaErrorInvalidValue;
    if (registers) code = cudaHostRegister(host, page_bytes, plain | cudaHostRegisterIoMemory);
    if (code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        code = cudaHostRegister(host, page_bytes, plain);
    }
    if (code == cudaSuccess) ours_.insert(page);
    if (code == cudaErrorHostMemoryAlreadyRegistered) {
        static_cast<void>(cudaGetLastError());
        code = cudaSuccess;
    }
    if (auto done = cuda_done(code, "registering a page of a queue"); !done) return done.error();
    void* seen = nullptr;
    if (auto done = cuda_done(cudaHostGetDevicePointer(&seen, host, 0), "the address of a page"); !done)
        return done.error();
    if (seen == host) return {};
    return error{status::unsupported, 0, "the GPU sees the host's pages at other addresses"};
}

result<void> registered_pages::add(const void* first, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    for (std::uintptr_t page = begin & ~(page_bytes - 1); page < begin + bytes; page += page_bytes)
        if (auto done = add_page(page, false); !done) return done.error();
    return {};
}

result<void> registered_pages::add_registers(const void* first, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    for (std::uintptr_t page = begin & ~(page_bytes - 1); page < begin + bytes; page += page_bytes)
        if (auto done = add_page(page, true); !done) return done.error();
    return {};
}

}  // namespace accel::bench
