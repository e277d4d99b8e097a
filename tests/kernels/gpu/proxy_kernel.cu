// SPDX-License-Identifier: Apache-2.0
#include "gpu/proxy_kernel.hpp"
#include "rdma/proxy_messages.hpp"

#include <chrono>
#include <thread>

#include <cuda_runtime.h>

namespace accel::tests {
namespace {

constexpr std::uint64_t patience_ns = 20'000'000'000;

__device__ std::uint64_t clock_ns() {
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ std::byte* place(const proxy_asker& from, std::uint32_t area, std::uint32_t slot) {
    return from.memory + (std::size_t{area} * from.slots + slot) * max_message_bytes;
}

/// One slot's thread.
__device__ void ask(const proxy_asker& from, std::uint32_t slot, proxy_outcome& outcome) {
    const std::uint64_t until = clock_ns() + patience_ns;
    for (std::uint32_t round = 0; round < from.rounds; ++round) {
        const std::uint64_t seed = (std::uint64_t{slot + 1} << 32) | round;
        std::byte* const at = place(from, 0, slot);
        const std::uint32_t length = write_message(at, seed);
        const mlx5::local_range range{reinterpret_cast<std::uintptr_t>(at), length, from.local_key};
        mlx5::work_request request;
        request.operation = mlx5::opcode::write_immediate;
        request.flags = round % 4 == 0 ? mlx5::flag_signalled : std::uint8_t{0};
        request.immediate = mlx5::to_be32(slot);
        request.ranges = 1;
        request.first = &range;
        request.remote_address = reinterpret_cast<std::uintptr_t>(place(from, 1, slot));
        request.remote_key = from.remote_key;
        bool in_time = true;
        while (in_time && proxy::post(from.sends, request) != status::ok) in_time = clock_ns() < until;
        while (in_time && device::detail::load_acquire(&from.arrived[slot]) == round) in_time = clock_ns() < until;
        if (!in_time) {
            atomicAdd(&outcome.expired, 1U);
            return;
        }
        atomicAdd(is_message(place(from, 3, slot), ~seed) ? &outcome.right : &outcome.wrong, 1U);
    }
}

/// The thread that takes completions, until all others have ended and all has been told that was asked for.
__device__ void take_all(const proxy_asker& from, proxy_outcome& outcome) {
    const std::uint32_t asked = from.slots * ((from.rounds + 3) / 4);
    const std::uint64_t until = clock_ns() + patience_ns;
    while (clock_ns() < until && (device::detail::load_acquire(from.over) < from.slots || outcome.sent < asked)) {
        mlx5::completion done;
        if (!proxy::take(from.completions, done)) continue;
        proxy::publish_taken(from.completions);
        const std::uint32_t slot = mlx5::from_be(done.immediate);
        if (done.kind == mlx5::entry_kind::request) {
            outcome.sent += 1;
            if (!proxy::release(from.sends, done.counter)) outcome.strange += 1;
        } else if (done.kind == mlx5::entry_kind::write_immediate && slot < from.slots) {
            device::detail::store_release(&from.arrived[slot], device::detail::load_relaxed(&from.arrived[slot]) + 1);
        } else {
            outcome.strange += 1;
        }
    }
}

__global__ void asking(proxy_asker from, proxy_outcome* outcome) {
    // The first block takes completions, by one thread.
    if (blockIdx.x == 0) {
        if (threadIdx.x != 0) return;
        const std::uint64_t begun = clock_ns();
        take_all(from, *outcome);
        outcome->nanoseconds = clock_ns() - begun;
        return;
    }
    const std::uint32_t slot = (blockIdx.x - 1) * blockDim.x + threadIdx.x;
    if (slot >= from.slots) return;
    ask(from, slot, *outcome);
    __threadfence();
    atomicAdd(from.over, 1U);
}

__global__ void posting(proxy_asker from, std::uint32_t count, proxy_outcome* outcome) {
    const std::uint64_t begun = clock_ns();
    const std::uint64_t until = begun + patience_ns;
    const mlx5::local_range range{reinterpret_cast<std::uintptr_t>(from.memory), 8, from.local_key};
    mlx5::work_request request;
    request.operation = mlx5::opcode::write;
    request.ranges = 1;
    request.first = &range;
    request.remote_address = reinterpret_cast<std::uintptr_t>(place(from, 1, 0));
    request.remote_key = from.remote_key;
    std::uint32_t posted = 0;
    while (posted < count && clock_ns() < until) posted += proxy::post(from.sends, request) == status::ok ? 1 : 0;
    outcome->right = posted;
    outcome->nanoseconds = clock_ns() - begun;
}

}  // namespace

void launch_asking(CUstream_st* stream, const proxy_asker& from, proxy_outcome* outcome) {
    constexpr std::uint32_t threads = 32;
    asking<<<1 + (from.slots + threads - 1) / threads, threads, 0, stream>>>(from, outcome);
}

void launch_posting(CUstream_st* stream, const proxy_asker& from, std::uint32_t count, proxy_outcome* outcome) {
    posting<<<1, 1, 0, stream>>>(from, count, outcome);
}

void* gpu_memory(std::size_t bytes) {
    void* made = nullptr;
    if (cudaMalloc(&made, bytes) != cudaSuccess || cudaMemset(made, 0, bytes) != cudaSuccess) return nullptr;
    return cudaDeviceSynchronize() == cudaSuccess ? made : nullptr;
}

bool pin_for_gpu(void* begin, std::size_t bytes) {
    return cudaHostRegister(begin, bytes, cudaHostRegisterDefault) == cudaSuccess;
}

void unpin(void* begin) {
    (void)cudaHostUnregister(begin);
}

void end(CUstream_st* stream, void* memory) {
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
    (void)cudaFree(memory);
}

bool finish_within(CUstream_st* stream, double seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until) {
        const cudaError_t now = cudaStreamQuery(stream);
        if (now != cudaErrorNotReady) return now == cudaSuccess;
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return false;
}

CUstream_st* make_stream() {
    cudaStream_t made = nullptr;
    return cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) == cudaSuccess ? made : nullptr;
}

}  // namespace accel::tests
