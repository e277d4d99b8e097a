// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/device/scope.hpp>

#include <cstdint>

/// Posts a batch of requests with one doorbell, by all threads of a scope together. Each thread says how many
/// WQEBBs its own requests take (`reserve`) and writes them (`fill`). Then one thread publishes and rings.
/// Requests lie in the order of the threads' ranks. All threads of the scope call each step, and all get the
/// same status. No step waits for the adapter.
namespace accel::bench {

using device::block_scope;
using device::thread_scope;
using device::warp_scope;

/// Blocks before those of this thread, and of the whole scope.
struct wqebb_sum {
    std::uint32_t before = 0;
    std::uint32_t all = 0;
};

/// Where in a batch the requests of one thread lie.
struct batch_share {
    std::uint32_t first = 0;  ///< this thread's first WQEBB
    std::uint32_t end = 0;    ///< of the batch
    bool closes = false;      ///< the batch's last request is this thread's: it publishes and rings
};

/// The sum over the scope's threads.
template <class Scope>
struct sum_of;
template <>
struct sum_of<thread_scope> {
    ACCEL_HOST_DEVICE static wqebb_sum add(std::uint32_t mine) noexcept { return {0, mine}; }
};

#if defined(__CUDACC__)
inline constexpr std::uint32_t warp_threads = 32;

/// The sum of `mine` over the lanes up to this one, of those in `lanes`.
__device__ inline std::uint32_t sum_up_to(std::uint32_t mine, std::uint32_t lane, std::uint32_t lanes) noexcept {
    std::uint32_t sum = mine;
    for (std::uint32_t step = 1; step < warp_threads; step *= 2) {
        const std::uint32_t below = __shfl_up_sync(lanes, sum, step);
        if (lane >= step) sum += below;
    }
    return sum;
}

template <>
struct sum_of<warp_scope> {
    __device__ static wqebb_sum add(std::uint32_t mine) noexcept {
        const std::uint32_t sum = sum_up_to(mine, warp_scope::rank(), warp_scope::all_lanes);
        return {sum - mine, __shfl_sync(warp_scope::all_lanes, sum, warp_threads - 1)};
    }
};
template <>
struct sum_of<block_scope> {
    __device__ static wqebb_sum add(std::uint32_t mine) noexcept {
        constexpr std::uint32_t max_warps = 32;
        __shared__ std::uint32_t sums[max_warps];
        const std::uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
        const std::uint32_t warps = (threads + warp_threads - 1) / warp_threads;
        const std::uint32_t warp = block_scope::rank() / warp_threads;
        const std::uint32_t lane = block_scope::rank() % warp_threads;
        const std::uint32_t last = min(threads - warp * warp_threads, warp_threads) - 1;
        const std::uint32_t own = sum_up_to(mine, lane, warp_scope::all_lanes >> (31 - last));
        __syncthreads();  // nobody reads the sums of the batch before any more
        if (lane == last) sums[warp] = own;
        __syncthreads();
        wqebb_sum out{own - mine, 0};
        for (std::uint32_t i = 0; i < warps; ++i) {
            if (i < warp) out.before += sums[i];
            out.all += sums[i];
        }
        return out;
    }
};
#endif

/// Step 1: `mine` WQEBBs for this thread, 0 being none. `again`: so many are not free for all.
/// `message_too_large`: the ring has not so many. Either way nothing was taken, for no thread.
ACCEL_UNCHECKED_CALLS
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status reserve(const mlx5::send_queue_ref& queue, std::uint32_t mine,
                                                      batch_share& share) noexcept {
    const wqebb_sum sum = sum_of<Scope>::add(mine);
    if (sum.all > queue.wqebbs) return status::message_too_large;
    constexpr std::uint64_t none_free = std::uint64_t{1} << 32;
    std::uint64_t told = none_free;
    // Only the first thread looks at the queue's counters: they may be its own variables.
    if (Scope::rank() == 0) {
        std::uint32_t first = 0;
        if (mlx5::reserve(queue, sum.all, first) == status::ok) told = first;
    }
    told = Scope::of_first(told);
    if (told == none_free) return status::again;
    const auto first = static_cast<std::uint32_t>(told);
    share.first = first + sum.before;
    share.end = first + sum.all;
    share.closes = mine != 0 && sum.before + mine == sum.all;
    return status::ok;
}

/// Step 3, after each thread has filled its own: all requests of the batch are the adapter's. One fence, by
/// the thread that publishes, is enough for the stores of all: each of them comes before the meeting, which
/// synchronises with this thread, and the fence orders what happened before it, whoever did it, before the
/// record.
ACCEL_UNCHECKED_CALLS
template <class Scope, mlx5::queue_place Place = mlx5::queue_place::host>
ACCEL_HOST_DEVICE_INLINE void publish(const mlx5::send_queue_ref& queue, const batch_share& share) noexcept {
    Scope::meet();
    if (share.closes) mlx5::publish<Place>(queue, share.end);
}

/// Step 4: tells the adapter. `doorbell` is that of this thread's last request, if it has any.
template <mlx5::queue_place Place = mlx5::queue_place::host>
ACCEL_HOST_DEVICE_INLINE void ring(const mlx5::send_queue_ref& queue, const batch_share& share,
                                   std::uint64_t doorbell) noexcept {
    if (share.closes) mlx5::ring_with<Place>(queue, doorbell);
}

/// Steps 3 and 4 with one fence: the doorbell comes before the record (`mlx5::ring_early`). The fence of the next batch
/// orders that record; behind the last batch `mlx5::ring_again` has to follow.
ACCEL_UNCHECKED_CALLS
template <class Scope, mlx5::queue_place Place>
ACCEL_HOST_DEVICE_INLINE void ring_early(const mlx5::send_queue_ref& queue, const batch_share& share,
                                         std::uint64_t doorbell) noexcept {
    Scope::meet();
    if (share.closes) mlx5::ring_early<Place>(queue.doorbell, queue.doorbell_record, share.end, doorbell);
}

/// Of so many requests; more than `max` only says so.
ACCEL_HOST_DEVICE_INLINE std::uint32_t wqebbs_of_all(const mlx5::work_request* requests, std::uint32_t count,
                                                     std::uint32_t max) noexcept {
    std::uint32_t wqebbs = 0;
    for (std::uint32_t i = 0; i < count && wqebbs <= max; ++i) {
        const mlx5::request_size size = mlx5::size_of(requests[i]);
        wqebbs = size.ds > mlx5::max_ds ? max + 1 : wqebbs + mlx5::wqebbs_of(size.ds);
    }
    return wqebbs <= max ? wqebbs : max + 1;
}

/// All steps: `count` requests of this thread, and those of the others, with one doorbell.
/// `message_too_large` also where one of them is longer than any may be.
ACCEL_UNCHECKED_CALLS
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status post(const mlx5::send_queue_ref& queue,
                                                   const mlx5::work_request* requests, std::uint32_t count) noexcept {
    batch_share share;
    const std::uint32_t wqebbs = wqebbs_of_all(requests, count, queue.wqebbs);
    if (const status taken = reserve<Scope>(queue, wqebbs, share); taken != status::ok) return taken;
    std::uint32_t at = share.first;
    std::uint64_t doorbell = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const mlx5::request_size size = mlx5::size_of(requests[i]);
        mlx5::fill(queue, at, requests[i], size);
        doorbell = mlx5::doorbell_of(queue, at, requests[i], size);
        at += mlx5::wqebbs_of(size.ds);
    }
    publish<Scope>(queue, share);
    ring(queue, share, doorbell);
    return status::ok;
}

}  // namespace accel::bench
