#pragma once

#include <accel_transport/device/send_queue.hpp>

#include <cstdint>

/// Posting request after request with one fence each instead of two. Between a request, the doorbell record
/// that counts it and its doorbell there have to be two fences: an adapter that still works on earlier
/// requests may look at the record at any time, and one that is idle looks when the doorbell rings. But the
/// first fence of a request can be the second of the one before it, if that one's doorbell waits so long.
namespace accel::mlx5 {

/// A doorbell that has to ring yet: the adapter may not have seen the requests before it.
struct owed_doorbell {
    std::uint64_t value = 0;
    bool owed = false;
};

/// Steps 3 and 4: all requests before block `end` are the adapter's. Rings what is owed; the doorbell of this
/// request, `value`, is owed from now on, until the next one or `ring`.
ACCEL_HOST_DEVICE inline void publish_and_owe(const send_queue_ref& queue, std::uint32_t end,
                                              std::uint64_t value, owed_doorbell& owed) noexcept {
    order_wqe_before_record_and_record_before_doorbell();
    if (owed.owed) {
        store_whole(queue.doorbell, owed.value);
        flush_doorbell();
    }
    store_whole(queue.doorbell_record, to_be32(end & 0xffffU));
    owed = {value, true};
}

/// Step 4, when nothing more is to be posted now.
ACCEL_HOST_DEVICE inline void ring(const send_queue_ref& queue, owed_doorbell& owed) noexcept {
    if (!owed.owed) return;
    ring_with(queue, owed.value);
    owed.owed = false;
}

/// All steps, for one request; `again` and `message_too_large` leave what is owed as it is.
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status post(const send_queue_ref& queue, const work_request& request,
                                                   owed_doorbell& owed) noexcept {
    const request_size size = size_of(request);
    if (size.units > most_units) return status::message_too_large;
    const std::uint32_t blocks = blocks_of(size.units);
    std::uint32_t first = 0;
    if (const status taken = reserve(queue, blocks, first); taken != status::ok) return taken;
    fill(queue, first, request, size);
    publish_and_owe(queue, first + blocks, doorbell_of(queue, first, request, size), owed);
    return status::ok;
}

}  // namespace accel::mlx5
