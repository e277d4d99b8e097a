// SPDX-License-Identifier: Apache-2.0
#include "gpu/client_kernels.hpp"

#include <accel_transport/device/client.hpp>

#include <cstring>

namespace accel::tests {
namespace {

constexpr std::int64_t a_second = 1'000'000'000;

__device__ std::byte byte_of(std::uint64_t seed, std::uint64_t at) {
    const std::uint64_t mixed = (seed * 0x9e3779b97f4a7c15ULL + at) * 0xbf58476d1ce4e5b9ULL;
    return static_cast<std::byte>(mixed >> 56);
}

__device__ void write(std::byte* to, std::uint64_t bytes, std::uint64_t seed, std::uint32_t rank, std::uint32_t ranks) {
    for (std::uint64_t i = rank; i < bytes; i += ranks) to[i] = byte_of(seed, i);
}

__device__ bool is_right(const std::byte* from, std::uint64_t bytes, std::uint64_t seed, std::uint32_t rank,
                         std::uint32_t ranks) {
    bool right = true;
    for (std::uint64_t i = rank; i < bytes; i += ranks)
        right = right && *const_cast<const volatile std::byte*>(from + i) == byte_of(seed, i);
    return right;
}

__device__ std::uint64_t size_of_call(const call_plan& plan, std::uint64_t number) {
    return plan.all_sizes ? number * 37 % (plan.largest + 1) : plan.largest;
}

__device__ void record(client_tally& mine, status outcome, bool right, std::int64_t took) {
    if (outcome != status::ok) {
        ++mine.failed;
        mine.last_failure = static_cast<std::uint32_t>(outcome);
        return;
    }
    ++(right ? mine.right : mine.wrong);
    const auto ns = static_cast<std::uint64_t>(took);
    mine.total_ns += ns;
    if (mine.min_ns == 0 || ns < mine.min_ns) mine.min_ns = ns;
}

/// Its outcome, for all threads alike; `right` is the block's. `Channel`: a `channel_ref` or an `owned_channel`.
template <class Channel>
__device__ status call_by_block(Channel& channel, device::call_ref& call, std::uint64_t size, std::uint64_t seed,
                                bool& right) {
    status found = status::again;
    while (found == status::again) found = device::begin<device::block_scope>(channel, call);
    if (found != status::ok) return found;
    write(call.request, size, seed, threadIdx.x, blockDim.x);
    found = device::submit<device::block_scope>(channel, call, size);
    if (found == status::ok) {
        found = status::again;
        while (found == status::again) found = device::wait<device::block_scope>(channel, call, a_second);
    }
    const bool mine = found == status::ok && call.response_bytes == size &&
                      is_right(call.response, size, seed, threadIdx.x, blockDim.x);
    right = __syncthreads_and(mine) != 0;
    (void)device::release<device::block_scope>(channel, call);
    return found;
}

/// The calls of a block, until one fails.
template <class Channel>
__device__ void make_calls(Channel& channel, device::call_ref& call, const call_plan& plan, client_tally& tally) {
    for (std::uint64_t i = 0; plan.calls == 0 || i < plan.calls; ++i) {
        const std::int64_t begin = device::clock_ns();
        bool right = false;
        const std::uint64_t seed = blockIdx.x * 1'000'003ULL + i;
        const status found = call_by_block(channel, call, size_of_call(plan, i), seed, right);
        if (threadIdx.x == 0) record(tally, found, right, device::clock_ns() - begin);
        if (found != status::ok) return;
    }
}

__global__ void calling_blocks(const __grid_constant__ some_channels channels, call_plan plan, client_tally* tallies) {
    __shared__ device::call_ref call;
    make_calls(channels.each[blockIdx.x % channels.count], call, plan, tallies[blockIdx.x]);
}

__global__ void owning_blocks(const __grid_constant__ some_channels channels, call_plan plan, client_tally* tallies) {
    __shared__ device::call_ref call;
    __shared__ device::owned_channel mine;
    const status owned = device::own<device::block_scope>(channels.each[blockIdx.x], mine);
    if (owned == status::ok) return make_calls(mine, call, plan, tallies[blockIdx.x]);
    if (threadIdx.x == 0) record(tallies[blockIdx.x], owned, false, 0);
}

/// Part i has i bytes, all of which are i.
__device__ bool is_token(const device::arrival_ref& part, std::uint32_t number) {
    bool right = part.response_bytes == number;
    for (std::uint32_t i = threadIdx.x; right && i < number; i += blockDim.x)
        right = *const_cast<const volatile std::byte*>(part.response + i) == static_cast<std::byte>(number);
    return right;
}

/// Its end, for all threads alike; `right` is the block's.
__device__ status read_stream(device::owned_channel& channel, device::call_ref& call, device::arrival_ref& part,
                              const stream_plan& plan, bool& right) {
    using scope = device::block_scope;
    status found = status::again;
    while (found == status::again) found = device::begin<scope>(channel, call);
    if (found != status::ok) return found;
    if (threadIdx.x == 0) call.request[0] = static_cast<std::byte>(plan.tokens);
    found = status::again;  // until room of the call before is back
    while (found == status::again) found = device::submit<scope>(channel, call, 1, {.parts = plan.parts});
    std::uint32_t number = 0;
    bool mine = found == status::ok;
    for (bool more = mine; more;) {
        found = device::wait<scope>(channel, call, part, a_second);
        if (found == status::again) continue;
        more = part.more;
        if (more) mine = is_token(part, number++) && mine;
        if (more && number == plan.cancel_at) (void)device::cancel<scope>(channel, call);
        (void)device::release<scope>(channel, part);
    }
    if (plan.cancel_at != 0 && found == status::cancelled && number == plan.cancel_at)
        found = status::ok;
    else
        mine = mine && number == plan.tokens;
    right = __syncthreads_and(mine) != 0;
    return found;
}

__global__ void streaming_blocks(const __grid_constant__ some_channels channels, stream_plan plan,
                                 client_tally* tallies) {
    __shared__ device::call_ref call;
    __shared__ device::arrival_ref part;
    __shared__ device::owned_channel mine;
    status found = device::own<device::block_scope>(channels.each[blockIdx.x], mine);
    for (std::uint32_t i = 0; found == status::ok && i < plan.calls; ++i) {
        const std::int64_t begin = device::clock_ns();
        bool right = false;
        found = read_stream(mine, call, part, plan, right);
        if (threadIdx.x == 0) record(tallies[blockIdx.x], found, right, device::clock_ns() - begin);
    }
}

__device__ status call_by_thread(const device::channel_ref& channel, std::uint64_t size, std::uint64_t seed,
                                 bool& right) {
    device::call_ref call;
    status found = status::again;
    while (found == status::again) found = device::begin(channel, call);
    if (found != status::ok) return found;
    write(call.request, size, seed, 0, 1);
    found = device::submit(channel, call, size);
    if (found == status::ok) {
        found = status::again;
        while (found == status::again) found = device::wait(channel, call, a_second);
    }
    right = found == status::ok && call.response_bytes == size && is_right(call.response, size, seed, 0, 1);
    (void)device::release(channel, call);
    return found;
}

__global__ void calling_threads(const __grid_constant__ some_channels channels, call_plan plan, client_tally* tallies) {
    const device::channel_ref& channel = channels.each[blockIdx.x % channels.count];
    const std::uint32_t self = blockIdx.x * blockDim.x + threadIdx.x;
    for (std::uint64_t i = 0; plan.calls == 0 || i < plan.calls; ++i) {
        const std::int64_t begin = device::clock_ns();
        bool right = false;
        const status found = call_by_thread(channel, size_of_call(plan, i), self * 1'000'003ULL + i, right);
        record(tallies[self], found, right, device::clock_ns() - begin);
        if (found != status::ok) return;
    }
}

}  // namespace

bool load_calling_kernels() {
    cudaFuncAttributes loaded{};
    return cudaFuncGetAttributes(&loaded, calling_blocks) == cudaSuccess &&
           cudaFuncGetAttributes(&loaded, owning_blocks) == cudaSuccess &&
           cudaFuncGetAttributes(&loaded, streaming_blocks) == cudaSuccess &&
           cudaFuncGetAttributes(&loaded, calling_threads) == cudaSuccess;
}

bool launch_calling_blocks(const some_channels& channels, const call_plan& plan, int blocks, int threads,
                           client_tally* tallies, CUstream_st* stream) {
    calling_blocks<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(channels, plan,
                                                                                                 tallies);
    return cudaGetLastError() == cudaSuccess;
}

bool launch_owning_blocks(const some_channels& channels, const call_plan& plan, int threads, client_tally* tallies,
                          CUstream_st* stream) {
    owning_blocks<<<channels.count, static_cast<unsigned>(threads), 0, stream>>>(channels, plan, tallies);
    return cudaGetLastError() == cudaSuccess;
}

bool launch_streaming_blocks(const some_channels& channels, const stream_plan& plan, int threads, client_tally* tallies,
                             CUstream_st* stream) {
    streaming_blocks<<<channels.count, static_cast<unsigned>(threads), 0, stream>>>(channels, plan, tallies);
    return cudaGetLastError() == cudaSuccess;
}

bool launch_calling_threads(const some_channels& channels, const call_plan& plan, int blocks, int threads,
                            client_tally* tallies, CUstream_st* stream) {
    calling_threads<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(channels, plan,
                                                                                                  tallies);
    return cudaGetLastError() == cudaSuccess;
}

client_tally* allocate_tallies(int count) {
    void* made = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(client_tally);
    if (cudaMallocHost(&made, bytes) != cudaSuccess) return nullptr;
    std::memset(made, 0, bytes);
    return static_cast<client_tally*>(made);
}

}  // namespace accel::tests
