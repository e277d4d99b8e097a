// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "turn.hpp"

#include <accel_transport/device/service.hpp>

#include <type_traits>

#include <cuda_runtime.h>

/// Kernels that echo and note how long each turn took.
namespace accel::bench {

using device::thread_scope;
using device::warp_scope;

/// Threads of a block whose only scope is this.
template <class Scope>
constexpr unsigned threads_of = std::is_same_v<Scope, thread_scope> ? 1 : 32;

/// Of this SM.
__device__ inline long long cycles_now() {
    long long now = 0;
    asm volatile("mov.u64 %0, %clock64;" : "=l"(now)::"memory");
    return now;
}

/// 16 bytes a load, of which each thread has several under way; payloads are aligned to that.
template <class Scope>
__device__ std::uint64_t echo(const device::exchange_ref& exchange) {
    const auto length = static_cast<std::uint32_t>(min(exchange.request_bytes, exchange.response_room));
    const std::byte* const from = exchange.request;
    std::byte* const to = exchange.response;
    constexpr std::uint32_t width = sizeof(uint4);
    constexpr std::uint32_t stride = threads_of<Scope> * width;
    constexpr std::uint32_t at_once = threads_of<Scope> == 1 ? 4 : 1;
#pragma unroll 1
    for (std::uint32_t at = threadIdx.x * width; at < length; at += at_once * stride) {
        uint4 pieces[at_once];
#pragma unroll
        for (std::uint32_t i = 0; i < at_once; ++i)
            if (at + i * stride < length) pieces[i] = *reinterpret_cast<const uint4*>(from + at + i * stride);
#pragma unroll
        for (std::uint32_t i = 0; i < at_once; ++i)
            if (at + i * stride < length) *reinterpret_cast<uint4*>(to + at + i * stride) = pieces[i];
    }
    return length;
}

/// Turns of one block, and how its two clocks go.
class stopwatch {
  public:
    __device__ explicit stopwatch(const turn_log& log) : log_(log), cycles_(cycles_now()), ns_(device::clock_ns()) {}
    /// A turn ends now. The exchange is read behind the clock.
    __device__ void note(long long begin, const device::exchange_ref& exchange) {
        const auto took = static_cast<std::uint32_t>(cycles_now() - begin);
        const auto seen = static_cast<std::uint32_t>(device::clock_ns() - exchange.arrival);
        if (threadIdx.x == 0 && count_ < log_.capacity) {
            log_.cycles[std::size_t{blockIdx.x} * log_.capacity + count_] = took;
            log_.seen[std::size_t{blockIdx.x} * log_.capacity + count_] = seen;
        }
        ++count_;
    }
    __device__ void end() const {
        if (threadIdx.x != 0) return;
        log_.counts[blockIdx.x] = min(count_, log_.capacity);
        const double ns = static_cast<double>(device::clock_ns() - ns_);
        log_.cycles_a_ns[blockIdx.x] = static_cast<double>(cycles_now() - cycles_) / ns;
    }

  private:
    const turn_log& log_;
    long long cycles_;
    std::int64_t ns_;
    std::uint32_t count_ = 0;
};

/// By one thread, or by one warp whose lanes share the look and the echo.
template <class Scope>
__global__ void exclusive_turns(device::service_ref service, turn_log log) {
    __shared__ device::owned_sessions mine;
    __shared__ device::exchange_ref exchange;
    if (device::own<Scope>(service, blockIdx.x, gridDim.x, mine) != status::ok) return;
    stopwatch watch(log);
    for (;;) {
        const long long begin = cycles_now();
        const status found = device::take<Scope>(mine, exchange);
        if (found == status::again) continue;
        if (found != status::ok) break;
        const std::uint64_t length = echo<Scope>(exchange);
        // As `reply` does, with a look at the clock behind the doorbell.
        (void)device::detail::by_first_of<Scope>([&] {
            const auto given = device::detail::give_answer(mine, exchange, {status::ok, 0, length});
            watch.note(begin, exchange);
            device::detail::account_for(mine, exchange, given);
            return status::ok;
        });
    }
    watch.end();
}

/// In a file of its own: kernels of one file that share functions compile to slower ones.
void launch_thread_turns(unsigned blocks, cudaStream_t stream, const device::service_ref& service, const turn_log& log);

}  // namespace accel::bench
