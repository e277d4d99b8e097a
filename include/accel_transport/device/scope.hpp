// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>

/// The caller of a device function: one thread, the threads of a warp, or those of a block. The functions of
/// `service.hpp` and `client.hpp` take the scope as a template argument: `wait<block_scope>(service, exchange,
/// timeout)`. All threads of the scope call together, with the same arguments; one of them does the work, and all get
/// the status.
/// Stores by any of them before the call happen before that work. The `exchange_ref` or `call_ref` is one object per
/// scope: in shared memory for a warp or a block.
namespace accel::device {

/// One thread; also on the host.
struct thread_scope {
    ACCEL_HOST_DEVICE static std::uint32_t rank() noexcept { return 0; }
    /// Orders the stores of the scope's threads before anything that any of them does next.
    ACCEL_HOST_DEVICE static void meet() noexcept {}
    /// The value of the thread of rank 0, after that thread's earlier stores. The threads must meet before they call
    /// `of_first` again.
    ACCEL_HOST_DEVICE static std::uint64_t of_first(std::uint64_t value) noexcept { return value; }
};
#if defined(__CUDACC__)
/// All 32 threads of a warp.
struct warp_scope {
    static constexpr std::uint32_t all_lanes = 0xffff'ffff;

    __device__ static std::uint32_t rank() noexcept {
        std::uint32_t lane = 0;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        return lane;
    }
    __device__ static void meet() noexcept { __syncwarp(all_lanes); }
    __device__ static std::uint64_t of_first(std::uint64_t value) noexcept {
        meet();
        return __shfl_sync(all_lanes, static_cast<unsigned long long>(value), 0);
    }
};

/// All threads of a block, of any size.
struct block_scope {
    __device__ static std::uint32_t rank() noexcept {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    __device__ static void meet() noexcept { __syncthreads(); }
    __device__ static std::uint64_t of_first(std::uint64_t value) noexcept {
        __shared__ std::uint64_t shared;
        if (rank() == 0) shared = value;
        meet();
        return shared;
    }
};
#else
struct warp_scope;
struct block_scope;
#endif

namespace detail {

template <class Scope>
inline constexpr bool is_scope = false;
template <>
inline constexpr bool is_scope<thread_scope> = true;
#if defined(__CUDACC__)
template <>
inline constexpr bool is_scope<warp_scope> = true;
template <>
inline constexpr bool is_scope<block_scope> = true;
#endif

/// The first `count` threads work, for all. `work` must return the same status on each of them.
ACCEL_UNCHECKED_CALLS
template <class Scope, class Work>
ACCEL_HOST_DEVICE_INLINE status by_threads_of(std::uint32_t count, const Work& work) noexcept {
    static_assert(is_scope<Scope>, "a scope is thread_scope, or in a CUDA kernel warp_scope or block_scope");
    Scope::meet();
    status outcome = status::ok;
    if (Scope::rank() < count) outcome = work();
    return static_cast<status>(Scope::of_first(static_cast<std::uint64_t>(outcome)));
}

/// The first thread works, for all.
ACCEL_UNCHECKED_CALLS
template <class Scope, class Work>
ACCEL_HOST_DEVICE_INLINE status by_first_of(const Work& work) noexcept {
    return by_threads_of<Scope>(1, work);
}

}  // namespace detail

}  // namespace accel::device
