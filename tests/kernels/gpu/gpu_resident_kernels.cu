// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_resident_kernels.hpp"

#include <accel_transport/device/service.hpp>

#include <cstring>

namespace accel::tests {
namespace {

__device__ void record(kernel_times* times, std::int64_t arrival) {
    if (times == nullptr || threadIdx.x != 0) return;
    kernel_times& mine = times[blockIdx.x];
    const auto took = static_cast<std::uint64_t>(device::clock_ns() - arrival);
    if (mine.served == 0 || took < mine.min_ns) mine.min_ns = took;
    if (took > mine.max_ns) mine.max_ns = took;
    mine.total_ns += took;
    ++mine.served;
}

__device__ void copy(std::byte* to, const std::byte* from, std::uint64_t bytes) {
    const std::uint64_t words = bytes / 8;
    auto* const wide_to = reinterpret_cast<std::uint64_t*>(to);
    const auto* const wide_from = reinterpret_cast<const volatile std::uint64_t*>(from);
    for (std::uint64_t i = threadIdx.x; i < words; i += blockDim.x) wide_to[i] = wide_from[i];
    for (std::uint64_t i = words * 8 + threadIdx.x; i < bytes; i += blockDim.x)
        to[i] = *const_cast<const volatile std::byte*>(from + i);
}

/// Each part by all threads. `Service`: a service, or its owner's sessions.
template <class Scope, class Service>
__device__ void stream_tokens(Service& from, const device::service_ref& service, const device::exchange_ref& exchange,
                              device::part_ref& part) {
    const auto parts = static_cast<std::uint32_t>(*const_cast<const volatile std::byte*>(exchange.request));
    for (std::uint32_t i = 0; i < parts; ++i) {
        status found = status::again;
        while (found == status::again) {
            found = device::next_part<Scope>(from, exchange, part);
            if (found == status::again && device::cancelled<Scope>(service, exchange)) found = status::cancelled;
        }
        if (found != status::ok) break;
        for (std::uint32_t at = threadIdx.x; at < i; at += blockDim.x) part.bytes[at] = static_cast<std::byte>(i);
        if (device::send<Scope>(from, exchange, i) != status::ok) break;
    }
    (void)device::reply<Scope>(from, exchange, 0);
}

__global__ void gpu_resident(device::service_ref service, kernel_work work, kernel_times* times) {
    __shared__ device::exchange_ref exchange;
    __shared__ device::part_ref part;
    constexpr std::int64_t a_second = 1'000'000'000;
    for (;;) {
        const status found = device::wait<device::block_scope>(service, exchange, a_second);
        if (found == status::timed_out) continue;
        if (found != status::ok) return;
        if (work == kernel_work::fail) {
            (void)device::fail<device::block_scope>(service, exchange, status::application_error, 7);
            continue;
        }
        if (work == kernel_work::tokens) {
            stream_tokens<device::block_scope>(service, service, exchange, part);
            continue;
        }
        const std::uint64_t length =
            exchange.request_bytes < exchange.response_room ? exchange.request_bytes : exchange.response_room;
        copy(exchange.response, exchange.request, length);
        (void)device::reply<device::block_scope>(service, exchange, length);
        record(times, exchange.arrival);
    }
}

template <class Scope>
__global__ void owners(device::service_ref service, kernel_work work, kernel_times* times) {
    __shared__ device::owned_sessions mine;
    __shared__ device::exchange_ref exchange;
    __shared__ device::part_ref part;
    constexpr std::int64_t a_second = 1'000'000'000;
    if (device::own<Scope>(service, blockIdx.x, gridDim.x, mine) != status::ok) return;
    for (;;) {
        const status found = device::wait<Scope>(mine, exchange, a_second);
        if (found == status::timed_out) continue;
        if (found != status::ok) return;
        if (work == kernel_work::fail) {
            (void)device::fail<Scope>(mine, exchange, status::application_error, 7);
            continue;
        }
        if (work == kernel_work::tokens) {
            stream_tokens<Scope>(mine, service, exchange, part);
            continue;
        }
        const std::uint64_t length =
            exchange.request_bytes < exchange.response_room ? exchange.request_bytes : exchange.response_room;
        copy(exchange.response, exchange.request, length);
        (void)device::reply<Scope>(mine, exchange, length);
        record(times, exchange.arrival);
    }
}

}  // namespace

bool launch_owners(const device::service_ref& service, kernel_work work, int blocks, int threads, kernel_times* times,
                   CUstream_st* stream) {
    const auto grid = static_cast<unsigned>(blocks);
    constexpr int warp = 32;
    if (threads == warp)
        owners<device::warp_scope><<<grid, warp, 0, stream>>>(service, work, times);
    else
        owners<device::block_scope><<<grid, static_cast<unsigned>(threads), 0, stream>>>(service, work, times);
    return cudaGetLastError() == cudaSuccess;
}

bool launch_gpu_resident(const device::service_ref& service, kernel_work work, int blocks, int threads,
                         kernel_times* times, CUstream_st* stream) {
    gpu_resident<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(service, work, times);
    return cudaGetLastError() == cudaSuccess;
}

CUstream_st* open_stream() {
    int count = 0;
    cudaStream_t made = nullptr;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return nullptr;
    if (cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) != cudaSuccess) return nullptr;
    return made;
}
void close_stream(CUstream_st* stream) {
    (void)cudaStreamDestroy(stream);
}

const char* stream_failure(CUstream_st* stream) {
    const cudaError_t code = cudaStreamSynchronize(stream);
    return code == cudaSuccess ? "" : cudaGetErrorString(code);
}

kernel_times* allocate_times(int count) {
    void* made = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(kernel_times);
    if (cudaMallocHost(&made, bytes) != cudaSuccess) return nullptr;
    std::memset(made, 0, bytes);
    return static_cast<kernel_times*>(made);
}

}  // namespace accel::tests
