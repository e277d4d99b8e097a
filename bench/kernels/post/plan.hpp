// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "batch.hpp"

#include <cstdint>

/// What `gpu_post_bench` posts, made by one function wherever it runs: WRITEs of one length to a ring.
namespace accel::bench {

/// Requests of one queue. The n-th begins at WQEBB n × `wqebbs`, and names memory there, so that each differs
/// and all can be made again to compare.
struct post_plan {
    std::uint64_t requests = 0;  ///< a multiple of `batch`
    std::uint32_t batch = 1;     ///< requests a doorbell, of all threads that post together
    std::uint32_t wqebbs = 1;    ///< of each request
    std::uint32_t payload_bytes = 0;
    std::uint64_t payload = 0;  ///< address: of registered memory, or of what is carried
    std::uint64_t remote = 0;
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
};

template <bool Carried>
ACCEL_HOST_DEVICE_INLINE mlx5::work_request request_at(const post_plan& plan, std::uint32_t wqebb, bool last,
                                                       mlx5::local_range& range) noexcept {
    range = {plan.payload + (Carried ? 0 : wqebb), plan.payload_bytes, plan.local_key};
    mlx5::work_request request;
    request.operation = mlx5::opcode::write;
    request.flags = last ? mlx5::flag_signalled : std::uint8_t{0};
    request.carries_bytes = Carried;
    request.ranges = 1;
    request.first = &range;
    request.remote_key = plan.remote_key;
    request.remote_address = plan.remote + wqebb;
    return request;
}

/// WQEBBs of a request of this length.
inline std::uint32_t wqebbs_for(std::uint32_t payload_bytes, bool carried) noexcept {
    const mlx5::local_range range{0, payload_bytes, 0};
    mlx5::work_request request;
    request.carries_bytes = carried;
    request.ranges = 1;
    request.first = &range;
    return mlx5::wqebbs_of(mlx5::size_of(request).ds);
}

/// Fills this thread's `count` requests of a batch; returns what the doorbell takes for the last.
template <bool Carried>
ACCEL_HOST_DEVICE_INLINE std::uint64_t fill_share(const mlx5::send_queue_ref& queue, const post_plan& plan,
                                                  const batch_share& share, std::uint32_t count) noexcept {
    std::uint64_t doorbell = 0;
    std::uint32_t at = share.first;
    for (std::uint32_t i = 0; i < count; ++i, at += plan.wqebbs) {
        const bool last = at + plan.wqebbs == share.end;
        mlx5::local_range range;
        const mlx5::work_request request = request_at<Carried>(plan, at, last, range);
        const mlx5::request_size size = mlx5::size_of(request);
        mlx5::fill(queue, at, request, size);
        if (i + 1 == count) doorbell = mlx5::doorbell_of(queue, at, request, size);
    }
    return doorbell;
}

/// The adapter that nobody has: when the ring cannot take another batch, all of it is done.
ACCEL_HOST_DEVICE_INLINE void play_adapter(const mlx5::send_queue_ref& queue, std::uint32_t needed) noexcept {
    if (mlx5::free_wqebbs(queue) >= needed) return;
    static_cast<void>(mlx5::release_to(queue, queue.state->reserved));
}

}  // namespace accel::bench
