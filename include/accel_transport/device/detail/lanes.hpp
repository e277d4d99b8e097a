// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/scope.hpp>

#include <cstdint>

/// The threads of a scope that look at slots side by side: the thread itself, or the first warp. Their values
/// are compared and handed on within one warp, so no step needs memory.
namespace accel::device::detail {

/// The lane of `thread_scope`: one.
template <class Scope>
struct lanes {
    static constexpr bool are_all = true;  ///< the scope has no other threads
    static constexpr std::uint32_t none = 0xffff'ffffU;
    ACCEL_HOST_DEVICE static std::uint32_t count() noexcept { return 1; }
    ACCEL_HOST_DEVICE static std::uint32_t rank() noexcept { return 0; }
    /// The first lane that says true, from `start` on and then from 0 on, or `none`. What any lane read before is
    /// before what each does next.
    ACCEL_HOST_DEVICE static std::uint32_t first_where(bool mine, std::uint32_t /*start*/) noexcept {
        return mine ? 0 : none;
    }
    /// The value of `lane`.
    ACCEL_HOST_DEVICE static std::uint32_t of(std::uint32_t value, std::uint32_t /*lane*/) noexcept { return value; }
};

#if defined(__CUDACC__)
/// The lanes of a warp, or of a block's first warp.
template <class Scope>
struct warp_lanes {
    static constexpr std::uint32_t most = 32;
    static constexpr std::uint32_t none = 0xffff'ffffU;
    __device__ static std::uint32_t rank() noexcept { return Scope::rank(); }
    /// `start`: of a lane.
    __device__ static std::uint32_t first_where(bool mine, std::uint32_t start) noexcept {
        const std::uint32_t mask = lanes<Scope>::mask();
        const std::uint32_t found = __ballot_sync(mask, mine);
        __syncwarp(mask);
        const std::uint32_t behind = found & (none << start);
        // None is found: `__ffs` says 0.
        return static_cast<std::uint32_t>(__ffs(static_cast<int>(behind != 0 ? behind : found))) - 1;
    }
    __device__ static std::uint32_t of(std::uint32_t value, std::uint32_t lane) noexcept {
        const std::uint32_t mask = lanes<Scope>::mask();
        __syncwarp(mask);
        return __shfl_sync(mask, value, static_cast<int>(lane));
    }
};
/// All lanes of a warp.
template <>
struct lanes<warp_scope> : warp_lanes<warp_scope> {
    static constexpr bool are_all = true;
    __device__ static std::uint32_t count() noexcept { return most; }
    __device__ static std::uint32_t mask() noexcept { return warp_scope::all_lanes; }
};
/// For a block, the lanes of its first warp.
template <>
struct lanes<block_scope> : warp_lanes<block_scope> {
    static constexpr bool are_all = false;
    __device__ static std::uint32_t count() noexcept {
        const std::uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
        return threads < most ? threads : most;
    }
    __device__ static std::uint32_t mask() noexcept {
        return count() == most ? 0xffff'ffffU : (std::uint32_t{1} << count()) - 1;
    }
};
#endif

/// The scope's lanes work, for all. `work` says the same on each lane.
ACCEL_UNCHECKED_CALLS
template <class Scope, class Work>
ACCEL_HOST_DEVICE_INLINE status by_lanes_of(const Work& work) noexcept {
    static_assert(is_scope<Scope>, "a scope is thread_scope, or in a CUDA kernel warp_scope or block_scope");
    if constexpr (!lanes<Scope>::are_all) return by_threads_of<Scope>(lanes<Scope>::count(), work);
    Scope::meet();
    const status outcome = work();
    Scope::meet();
    return outcome;
}

}  // namespace accel::device::detail
