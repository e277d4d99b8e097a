// SPDX-License-Identifier: Apache-2.0
#include "gpu_turn.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <cuda_runtime.h>

namespace accel::bench {
namespace {

constexpr unsigned lanes = 32;
using device::warp_scope;

/// Of this SM.
__device__ inline long long cycles_now() {
    long long now = 0;
    asm volatile("mov.u64 %0, %clock64;" : "=l"(now)::"memory");
    return now;
}

/// 16 bytes a lane; payloads are aligned to that.
__device__ std::uint64_t echo(const device::exchange_ref& exchange) {
    const auto length = static_cast<std::uint32_t>(min(exchange.request_bytes, exchange.response_room));
    const std::byte* const from = exchange.request;
    std::byte* const to = exchange.response;
    constexpr std::uint32_t width = sizeof(uint4);
#pragma unroll 1
    for (std::uint32_t at = threadIdx.x * width; at < length; at += lanes * width)
        *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
    return length;
}

/// Turns of one block, and how its two clocks go.
class stopwatch {
  public:
    __device__ explicit stopwatch(const turn_log& log) : log_(log), cycles_(cycles_now()), ns_(device::clock_ns()) {}
    __device__ void note(long long begin) {
        const auto took = static_cast<std::uint32_t>(cycles_now() - begin);
        if (threadIdx.x == 0 && count_ < log_.capacity)
            log_.cycles[std::size_t{blockIdx.x} * log_.capacity + count_] = took;
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

__global__ void shared_turns(device::service_ref service, turn_log log) {
    __shared__ device::exchange_ref exchange;
    stopwatch watch(log);
    for (;;) {
        const long long begin = cycles_now();
        const status found = device::take<warp_scope>(service, exchange);
        if (found == status::again) continue;
        if (found != status::ok) break;
        (void)device::reply<warp_scope>(service, exchange, echo(exchange));
        watch.note(begin);
    }
    watch.end();
}

__global__ void exclusive_turns(device::service_ref service, turn_log log) {
    __shared__ device::owned_sessions mine;
    __shared__ device::exchange_ref exchange;
    if (device::own<warp_scope>(service, blockIdx.x, gridDim.x, mine) != status::ok) return;
    stopwatch watch(log);
    for (;;) {
        const long long begin = cycles_now();
        const status found = device::take<warp_scope>(mine, exchange);
        if (found == status::again) continue;
        if (found != status::ok) break;
        const std::uint64_t length = echo(exchange);
        // As `reply` does, with a look at the clock behind the doorbell.
        (void)device::detail::by_first_of<warp_scope>([&] {
            const auto given = device::detail::give_answer(mine, exchange, {status::ok, 0, length});
            watch.note(begin);
            device::detail::account_for(mine, exchange, given);
            return status::ok;
        });
    }
    watch.end();
}

result<void> done(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return {};
    return error{status::system_error, code, std::string{what} + ": " + cudaGetErrorString(code)};
}

template <class Part>
result<void> allocate(Part*& out, std::size_t count) {
    void* made = nullptr;
    if (auto failed = done(cudaMalloc(&made, count * sizeof(Part)), "cudaMalloc"); !failed) return failed;
    out = static_cast<Part*>(made);
    return done(cudaMemset(made, 0, count * sizeof(Part)), "cudaMemset");
}

}  // namespace

result<turn_kernel> turn_kernel::prepare(std::uint32_t blocks, std::uint32_t capacity) {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return error{status::unsupported, 0, "there is no GPU"};
    turn_kernel made;
    made.blocks_ = blocks;
    made.log_.capacity = capacity;
    if (auto good = allocate(made.log_.cycles, std::size_t{blocks} * capacity); !good) return good.error();
    if (auto good = allocate(made.log_.counts, blocks); !good) return good.error();
    if (auto good = allocate(made.log_.cycles_a_ns, blocks); !good) return good.error();
    if (auto good = done(cudaStreamCreateWithFlags(&made.stream_, cudaStreamNonBlocking), "a stream"); !good)
        return good.error();
    if (auto good = done(cudaDeviceSynchronize(), "the GPU"); !good) return good.error();
    return result<turn_kernel>(std::move(made));
}

turn_kernel::turn_kernel(turn_kernel&& other) noexcept
    : log_(std::exchange(other.log_, {})), blocks_(other.blocks_), stream_(std::exchange(other.stream_, nullptr)) {}

turn_kernel::~turn_kernel() {
    (void)cudaFree(log_.cycles);
    (void)cudaFree(log_.counts);
    (void)cudaFree(log_.cycles_a_ns);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

result<void> turn_kernel::launch(const device::service_ref& service, bool exclusive) {
    if (exclusive)
        exclusive_turns<<<blocks_, lanes, 0, stream_>>>(service, log_);
    else
        shared_turns<<<blocks_, lanes, 0, stream_>>>(service, log_);
    return done(cudaGetLastError(), "the kernel");
}

result<std::vector<double>> turn_kernel::turns() const {
    std::vector<double> out;
    std::vector<std::uint32_t> some(log_.capacity);
    for (std::uint32_t block = 0; block < blocks_; ++block) {
        std::uint32_t count = 0;
        double rate = 0;
        const std::uint32_t* const from = log_.cycles + std::size_t{block} * log_.capacity;
        const auto all = {
            done(cudaMemcpy(&count, log_.counts + block, sizeof count, cudaMemcpyDeviceToHost), "counts"),
            done(cudaMemcpy(&rate, log_.cycles_a_ns + block, sizeof rate, cudaMemcpyDeviceToHost), "clocks"),
            done(cudaMemcpy(some.data(), from, some.size() * sizeof *from, cudaMemcpyDeviceToHost), "turns"),
        };
        for (const auto& each : all)
            if (!each) return each.error();
        for (std::uint32_t i = 0; i < count; ++i) out.push_back(some[i] / rate);
    }
    return out;
}

}  // namespace accel::bench
