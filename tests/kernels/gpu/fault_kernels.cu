// SPDX-License-Identifier: Apache-2.0
#include "gpu/fault_kernels.hpp"

#include <cstdint>

#include <cuda_runtime.h>

namespace accel::tests {
namespace {

constexpr std::int64_t a_second = 1'000'000'000;
constexpr std::uint64_t fatal_bytes = 1;
constexpr unsigned block = 64;

__device__ void fault(kernel_fault what) {
    if (what == kernel_fault::trap) __trap();
    constexpr std::uintptr_t nowhere = 8;
    *reinterpret_cast<volatile int*>(nowhere) = 1;
}

__device__ std::uint64_t echo(const device::exchange_ref& exchange, kernel_fault what) {
    if (exchange.request_bytes == fatal_bytes) fault(what);
    const std::uint64_t length =
        exchange.request_bytes < exchange.response_room ? exchange.request_bytes : exchange.response_room;
    for (std::uint64_t i = threadIdx.x; i < length; i += blockDim.x) exchange.response[i] = exchange.request[i];
    return length;
}

__global__ void faulting_service(device::service_ref service, kernel_fault what) {
    __shared__ device::exchange_ref exchange;
    for (;;) {
        const status found = device::wait<device::block_scope>(service, exchange, a_second);
        if (found == status::timed_out) continue;
        if (found != status::ok) return;
        (void)device::reply<device::block_scope>(service, exchange, echo(exchange, what));
    }
}

__global__ void faulting_owner(device::service_ref service, kernel_fault what) {
    __shared__ device::owned_sessions mine;
    __shared__ device::exchange_ref exchange;
    if (device::own<device::block_scope>(service, blockIdx.x, gridDim.x, mine) != status::ok) return;
    for (;;) {
        const status found = device::wait<device::block_scope>(mine, exchange, a_second);
        if (found == status::timed_out) continue;
        if (found != status::ok) return;
        (void)device::reply<device::block_scope>(mine, exchange, echo(exchange, what));
    }
}

__global__ void faulting_node(device::graph_iteration iteration, kernel_fault what) {
    for (std::uint32_t i = 0; i < *iteration.count; ++i)
        if (iteration.exchanges[i].request_bytes == fatal_bytes) fault(what);
}

__global__ void faulting(kernel_fault what) {
    fault(what);
}

bool launched() {
    return cudaGetLastError() == cudaSuccess;
}

}  // namespace

bool load_faulting_kernels() {
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, faulting_service) == cudaSuccess &&
           cudaFuncGetAttributes(&loaded, faulting_owner) == cudaSuccess &&
           cudaFuncGetAttributes(&loaded, faulting_node) == cudaSuccess &&
           cudaFuncGetAttributes(&loaded, faulting) == cudaSuccess;
}

bool launch_faulting_service(const device::service_ref& service, kernel_fault what, CUstream_st* stream) {
    faulting_service<<<1, block, 0, stream>>>(service, what);
    return launched();
}

bool launch_faulting_owner(const device::service_ref& service, kernel_fault what, CUstream_st* stream) {
    faulting_owner<<<1, block, 0, stream>>>(service, what);
    return launched();
}

bool record_fault(CUstream_st* stream, const device::graph_iteration& iteration, kernel_fault what) {
    faulting_node<<<1, 1, 0, stream>>>(iteration, what);
    return launched();
}

bool launch_fault(kernel_fault what, CUstream_st* stream) {
    faulting<<<1, 1, 0, stream>>>(what);
    return launched();
}

}  // namespace accel::tests
