#pragma once

#include <accel_transport/device/detail/mlx5/scopes.hpp>

#include <cstdint>

#if !defined(__CUDACC__)
#error "scopes.cuh is for CUDA kernels; on the host include scopes.hpp"
#endif

/// Warps and blocks as posters: the steps of `scopes.hpp`, called by all their threads at once.
namespace accel::mlx5 {

namespace detail {

inline constexpr std::uint32_t warp_threads = 32;

/// The sum of `mine` over the lanes up to this one, of those in `lanes`.
__device__ inline std::uint32_t sum_up_to(std::uint32_t mine, std::uint32_t lane,
                                          std::uint32_t lanes) noexcept {
    std::uint32_t sum = mine;
    for (std::uint32_t step = 1; step < warp_threads; step *= 2) {
        const std::uint32_t below = __shfl_up_sync(lanes, sum, step);
        if (lane >= step) sum += below;
    }
    return sum;
}

}  // namespace detail

/// All 32 threads of a warp.
struct warp_scope {
    static constexpr std::uint32_t all_lanes = 0xffff'ffff;

    __device__ static std::uint32_t rank() noexcept {
        std::uint32_t lane = 0;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        return lane;
    }
    __device__ static void meet() noexcept { __syncwarp(all_lanes); }
    __device__ static block_sum add(std::uint32_t mine) noexcept {
        const std::uint32_t sum = detail::sum_up_to(mine, rank(), all_lanes);
        return {sum - mine, __shfl_sync(all_lanes, sum, detail::warp_threads - 1)};
    }
    __device__ static std::uint64_t of_first(std::uint64_t value) noexcept {
        return __shfl_sync(all_lanes, static_cast<unsigned long long>(value), 0);
    }
};

/// All threads of a block, however many; what they share takes 136 bytes of shared memory.
struct block_scope {
    __device__ static std::uint32_t rank() noexcept {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    __device__ static void meet() noexcept { __syncthreads(); }
    __device__ static block_sum add(std::uint32_t mine) noexcept {
        constexpr std::uint32_t most_warps = 32;
        __shared__ std::uint32_t sums[most_warps];
        const std::uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
        const std::uint32_t warps = (threads + detail::warp_threads - 1) / detail::warp_threads;
        const std::uint32_t warp = rank() / detail::warp_threads;
        const std::uint32_t lane = rank() % detail::warp_threads;
        const std::uint32_t last = min(threads - warp * detail::warp_threads, detail::warp_threads) - 1;
        const std::uint32_t own = detail::sum_up_to(mine, lane, warp_scope::all_lanes >> (31 - last));
        __syncthreads();  // nobody reads the sums of the batch before any more
        if (lane == last) sums[warp] = own;
        __syncthreads();
        block_sum out{own - mine, 0};
        for (std::uint32_t i = 0; i < warps; ++i) {
            if (i < warp) out.before += sums[i];
            out.all += sums[i];
        }
        return out;
    }
    __device__ static std::uint64_t of_first(std::uint64_t value) noexcept {
        __shared__ std::uint64_t shared;
        if (rank() == 0) shared = value;
        __syncthreads();
        const std::uint64_t told = shared;
        __syncthreads();
        return told;
    }
};

/// Whether `Scope` is one of a kernel's.
template <class Scope>
inline constexpr bool is_scope_of_kernel = false;
template <>
inline constexpr bool is_scope_of_kernel<warp_scope> = true;
template <>
inline constexpr bool is_scope_of_kernel<block_scope> = true;

// As in scopes.hpp.

template <class Scope>
requires is_scope_of_kernel<Scope>
[[nodiscard]] __device__ __forceinline__ status reserve(const send_queue_ref& queue, std::uint32_t mine,
                                                        batch_share& share) noexcept {
    return detail::reserve_shared<Scope>(queue, mine, share);
}
template <class Scope>
requires is_scope_of_kernel<Scope> __device__ __forceinline__ void publish(
    const send_queue_ref& queue, const batch_share& share) noexcept {
    detail::publish_shared<Scope>(queue, share);
}
template <class Scope>
requires is_scope_of_kernel<Scope> __device__ __forceinline__ void ring(const send_queue_ref& queue,
                                                                        const batch_share& share,
                                                                        std::uint64_t doorbell) noexcept {
    detail::ring_shared(queue, share, doorbell);
}
template <class Scope>
requires is_scope_of_kernel<Scope>
[[nodiscard]] __device__ __forceinline__ status post(const send_queue_ref& queue,
                                                     const work_request* requests,
                                                     std::uint32_t count) noexcept {
    return detail::post_shared<Scope>(queue, requests, count);
}

}  // namespace accel::mlx5
