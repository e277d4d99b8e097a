// SPDX-License-Identifier: Apache-2.0
#include "turn.cuh"

#include <string>
#include <utility>

namespace accel::bench {
namespace {

__global__ void shared_turns(device::service_ref service, turn_log log) {
    __shared__ device::exchange_ref exchange;
    stopwatch watch(log);
    for (;;) {
        const long long begin = cycles_now();
        const status found = device::take<warp_scope>(service, exchange);
        if (found == status::again) continue;
        if (found != status::ok) break;
        (void)device::reply<warp_scope>(service, exchange, echo<warp_scope>(exchange));
        watch.note(begin, exchange);
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
    if (auto good = allocate(made.log_.seen, std::size_t{blocks} * capacity); !good) return good.error();
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
    (void)cudaFree(log_.seen);
    (void)cudaFree(log_.counts);
    (void)cudaFree(log_.cycles_a_ns);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

result<void> turn_kernel::launch(const device::service_ref& service, turn_scope scope, bool exclusive) {
    if (!exclusive)
        shared_turns<<<blocks_, threads_of<warp_scope>, 0, stream_>>>(service, log_);
    else if (scope == turn_scope::warp)
        exclusive_turns<warp_scope><<<blocks_, threads_of<warp_scope>, 0, stream_>>>(service, log_);
    else
        launch_thread_turns(blocks_, stream_, service, log_);
    return done(cudaGetLastError(), "the kernel");
}

result<turn_times> turn_kernel::turns() const {
    turn_times out;
    std::vector<std::uint32_t> cycles(log_.capacity);
    std::vector<std::uint32_t> seen(log_.capacity);
    for (std::uint32_t block = 0; block < blocks_; ++block) {
        std::uint32_t count = 0;
        double rate = 0;
        const std::size_t first = std::size_t{block} * log_.capacity;
        const std::size_t bytes = cycles.size() * sizeof cycles[0];
        const auto all = {
            done(cudaMemcpy(&count, log_.counts + block, sizeof count, cudaMemcpyDeviceToHost), "counts"),
            done(cudaMemcpy(&rate, log_.cycles_a_ns + block, sizeof rate, cudaMemcpyDeviceToHost), "clocks"),
            done(cudaMemcpy(cycles.data(), log_.cycles + first, bytes, cudaMemcpyDeviceToHost), "turns"),
            done(cudaMemcpy(seen.data(), log_.seen + first, bytes, cudaMemcpyDeviceToHost), "arrivals"),
        };
        for (const auto& each : all)
            if (!each) return each.error();
        for (std::uint32_t i = 0; i < count; ++i) out.from_look.push_back(cycles[i] / rate);
        out.from_seen.insert(out.from_seen.end(), seen.begin(), seen.begin() + count);
    }
    return out;
}

}  // namespace accel::bench
