#pragma once

#include <accel_transport/device/detail/mlx5/send_queue.hpp>

#include <cstdint>

/// Posting a batch of requests with one doorbell, by all threads of a scope together: each says how many
/// blocks its own requests take (`reserve`), writes them (`fill`), then one of them publishes and rings.
/// Requests lie in the order of the threads' ranks. All threads of the scope call each step, and all get the
/// same status; no step waits for the adapter. Here: one thread, on the host too. A warp's and a block's
/// scopes are in `scopes.cuh`.
namespace accel::mlx5 {

/// Blocks before those of this thread, and of the whole scope.
struct block_sum {
    std::uint32_t before = 0;
    std::uint32_t all = 0;
};

/// One thread, by itself.
struct thread_scope {
    ACCEL_HOST_DEVICE static std::uint32_t rank() noexcept { return 0; }
    /// What the scope's threads stored before is ordered before what any of them does next.
    ACCEL_HOST_DEVICE static void meet() noexcept {}
    ACCEL_HOST_DEVICE static block_sum add(std::uint32_t mine) noexcept { return {0, mine}; }
    /// The value of the thread of rank 0.
    ACCEL_HOST_DEVICE static std::uint64_t of_first(std::uint64_t value) noexcept { return value; }
};
/// The 32 threads of a warp; `scopes.cuh`.
struct warp_scope;
/// The threads of a block; `scopes.cuh`.
struct block_scope;

/// Where in a batch the requests of one thread lie.
struct batch_share {
    std::uint32_t first = 0;  ///< this thread's first block
    std::uint32_t end = 0;    ///< of the batch
    bool closes = false;      ///< the batch's last request is this thread's: it publishes and rings
};

/// Whether `Scope` can be used by the code of host and device alike.
template <class Scope>
inline constexpr bool is_scope_of_host = false;
template <>
inline constexpr bool is_scope_of_host<thread_scope> = true;

namespace detail {

template <class Scope>
ACCEL_HOST_DEVICE constexpr void check_scope() noexcept {
    static_assert(is_scope_of_host<Scope>,
                  "a scope is thread_scope, or in a CUDA kernel (scopes.cuh) warp_scope or block_scope");
}

/// Only the first thread looks at the queue's counters: they may be its own variables.
ACCEL_UNCHECKED_CALLS
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status reserve_shared(const send_queue_ref& queue, std::uint32_t mine,
                                                             batch_share& share) noexcept {
    const block_sum sum = Scope::add(mine);
    if (sum.all > queue.blocks) return status::message_too_large;
    constexpr std::uint64_t none_free = std::uint64_t{1} << 32;
    std::uint64_t told = none_free;
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

/// One fence, by the thread that publishes, is enough for the stores of all: each of them comes before the
/// meeting, which synchronises with this thread, and the fence orders what happened before it, whoever did
/// it, before the record.
ACCEL_UNCHECKED_CALLS
template <class Scope>
ACCEL_HOST_DEVICE_INLINE void publish_shared(const send_queue_ref& queue, const batch_share& share) noexcept {
    Scope::meet();
    if (share.closes) mlx5::publish(queue, share.end);
}

ACCEL_HOST_DEVICE_INLINE void ring_shared(const send_queue_ref& queue, const batch_share& share,
                                          std::uint64_t doorbell) noexcept {
    if (share.closes) mlx5::ring_with(queue, doorbell);
}

/// Of so many requests; more than `most` only says so.
ACCEL_HOST_DEVICE_INLINE std::uint32_t blocks_of_all(const work_request* requests, std::uint32_t count,
                                                     std::uint32_t most) noexcept {
    std::uint32_t blocks = 0;
    for (std::uint32_t i = 0; i < count && blocks <= most; ++i) {
        const request_size size = size_of(requests[i]);
        blocks = size.units > most_units ? most + 1 : blocks + mlx5::blocks_of(size.units);
    }
    return blocks <= most ? blocks : most + 1;
}

ACCEL_UNCHECKED_CALLS
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status post_shared(const send_queue_ref& queue,
                                                          const work_request* requests,
                                                          std::uint32_t count) noexcept {
    batch_share share;
    const std::uint32_t blocks = blocks_of_all(requests, count, queue.blocks);
    if (const status taken = reserve_shared<Scope>(queue, blocks, share); taken != status::ok) return taken;
    std::uint32_t at = share.first;
    std::uint64_t doorbell = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const request_size size = size_of(requests[i]);
        mlx5::fill(queue, at, requests[i], size);
        doorbell = doorbell_of(queue, at, requests[i], size);
        at += mlx5::blocks_of(size.units);
    }
    publish_shared<Scope>(queue, share);
    ring_shared(queue, share, doorbell);
    return status::ok;
}

}  // namespace detail

/// Step 1: `mine` blocks for this thread, 0 being none. `again`: so many are not free for all.
/// `message_too_large`: the ring has not so many. Either way nothing was taken, for no thread.
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status reserve(const send_queue_ref& queue, std::uint32_t mine,
                                                      batch_share& share) noexcept {
    detail::check_scope<Scope>();
    return detail::reserve_shared<Scope>(queue, mine, share);
}
/// Step 3, after each thread has filled its own: all requests of the batch are the adapter's.
template <class Scope>
ACCEL_HOST_DEVICE_INLINE void publish(const send_queue_ref& queue, const batch_share& share) noexcept {
    detail::check_scope<Scope>();
    detail::publish_shared<Scope>(queue, share);
}
/// Step 4: tells the adapter. `doorbell` is that of this thread's last request, if it has any.
template <class Scope>
ACCEL_HOST_DEVICE_INLINE void ring(const send_queue_ref& queue, const batch_share& share,
                                   std::uint64_t doorbell) noexcept {
    detail::check_scope<Scope>();
    detail::ring_shared(queue, share, doorbell);
}
/// All steps: `count` requests of this thread, and those of the others, with one doorbell.
/// `message_too_large` also where one of them is longer than any may be.
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status post(const send_queue_ref& queue, const work_request* requests,
                                                   std::uint32_t count) noexcept {
    detail::check_scope<Scope>();
    return detail::post_shared<Scope>(queue, requests, count);
}

}  // namespace accel::mlx5
