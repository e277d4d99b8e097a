// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/send_queue.hpp>

#include <cstdint>

/// Posting request after request with one fence each instead of two. Between a request, the doorbell record
/// that counts it and its doorbell there have to be two fences: an adapter that still works on earlier
/// requests may look at the record at any time, and one that is idle looks when the doorbell rings. But the
/// first fence of a request can be the second of the one before it, if that one's doorbell waits so long.
namespace accel::bench {

/// A doorbell that has to ring yet: the adapter may not have seen the requests before it.
struct deferred_doorbell {
    std::uint64_t value = 0;
    bool pending = false;
};

/// Steps 3 and 4: all requests before WQEBB `end` are the adapter's. Rings the deferred doorbell; the
/// doorbell of this request, `value`, is deferred until the next request or `ring`.
ACCEL_HOST_DEVICE inline void publish_and_defer(const mlx5::send_queue_ref& queue, std::uint32_t end,
                                                std::uint64_t value, deferred_doorbell& deferred) noexcept {
    // Both at once: this request is whole before the record counts it, and the record that counts the one before is in
    // memory before that one's doorbell rings.
    mlx5::order_stores_to_device();
    if (deferred.pending) {
        mlx5::store_whole(queue.doorbell, deferred.value);
        mlx5::flush_doorbell();
    }
    mlx5::store_whole(queue.doorbell_record, mlx5::to_be32(end & 0xffffU));
    deferred = {value, true};
}

/// Step 4, when nothing more is to be posted now.
ACCEL_HOST_DEVICE inline void ring(const mlx5::send_queue_ref& queue, deferred_doorbell& deferred) noexcept {
    if (!deferred.pending) return;
    mlx5::ring_with(queue, deferred.value);
    deferred.pending = false;
}

/// All steps, for one request; `again` and `message_too_large` leave the deferred doorbell as it is.
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status post(const mlx5::send_queue_ref& queue, const mlx5::work_request& request,
                                                   deferred_doorbell& deferred) noexcept {
    const mlx5::request_size size = mlx5::size_of(request);
    if (size.ds > mlx5::max_ds) return status::message_too_large;
    const std::uint32_t wqebbs = mlx5::wqebbs_of(size.ds);
    std::uint32_t first = 0;
    if (const status taken = mlx5::reserve(queue, wqebbs, first); taken != status::ok) return taken;
    mlx5::fill(queue, first, request, size);
    publish_and_defer(queue, first + wqebbs, mlx5::doorbell_of(queue, first, request, size), deferred);
    return status::ok;
}

}  // namespace accel::bench
