// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/service/exclusive_layout.hpp>

#include <cstddef>
#include <cstdint>

/// How the owner of a send queue posts: most of each work request was built beforehand, and the doorbell rings before
/// anything is counted. No lock, and no atomic operation.
namespace accel::device::detail {

/// 16 bytes in one store: over a bus each is a packet.
template <class Segment>
ACCEL_HOST_DEVICE inline void put_segment(std::byte* to, const Segment& segment) noexcept {
    static_assert(sizeof(Segment) == mlx5::ds_bytes);
#if defined(__CUDA_ARCH__)
    uint4 words;
    __builtin_memcpy(&words, &segment, sizeof words);
    *reinterpret_cast<uint4*>(to) = words;
#else
    *reinterpret_cast<Segment*>(to) = segment;
#endif
}

/// A work request of one WQEBB.
struct small_request {
    mlx5::control_segment control{};
    mlx5::remote_segment remote{};
    mlx5::data_segment local{};
};
ACCEL_HOST_DEVICE inline void put_request(const owned_sends& queue, std::uint32_t wqebb,
                                          const small_request& request) noexcept {
    std::byte* const at = queue.ring + std::size_t{wqebb & queue.wqebb_mask} * mlx5::wqebb_bytes;
    put_segment(at, request.control);
    put_segment(at + mlx5::ds_bytes, request.remote);
    put_segment(at + 2 * std::size_t{mlx5::ds_bytes}, request.local);
}

/// Joins the prepared part of a request and the part that changes from message to message. One request in a quarter of
/// the room asks for a completion.
ACCEL_HOST_DEVICE inline small_request request_of(const owned_sends& queue, const prepared_header& prepared,
                                                  std::uint32_t wqebb, mlx5::opcode operation,
                                                  std::uint64_t bytes) noexcept {
    const bool due = ((wqebb + 1) & (queue.limit / 4 - 1)) == 0;
    small_request out;
    out.control.opmod_idx_opcode = mlx5::opmod_idx_opcode_of(wqebb, operation);
    out.control.qpn_ds = prepared.qpn_ds;
    out.control.flags = due ? mlx5::flag_signalled : std::uint8_t{0};
    out.control.immediate = prepared.immediate;
    out.remote = prepared.remote;
    out.local = {mlx5::to_be32(static_cast<std::uint32_t>(bytes)), prepared.key, prepared.address};
    return out;
}

/// A posted request: the number of the WQEBB after it, and its doorbell.
struct posted_request {
    std::uint32_t end = 0;
    std::uint64_t doorbell = 0;
};

/// Posts the request for a header and what follows it, and rings, or hands it to the proxy.
ACCEL_HOST_DEVICE_INLINE posted_request post_header(engine by, mlx5::queue_place place, const owned_sends& queue,
                                                    const prepared_header& prepared, std::uint32_t slot,
                                                    std::uint32_t number, std::uint32_t bytes) noexcept {
    posted_request out;
    out.end = number + 1;
    if (by == engine::proxy) [[unlikely]] {
        proxy::order_payload_before_descriptor();
        proxy::fill_answer(reinterpret_cast<proxy::send_descriptor*>(queue.ring), queue.wqebb_mask, number, slot,
                           bytes);
        return out;
    }
    const small_request request = request_of(queue, prepared, number, prepared.operation, bytes);
    put_request(queue, number, request);
    __builtin_memcpy(&out.doorbell, &request.control, sizeof out.doorbell);
    if (place == mlx5::queue_place::gpu)
        mlx5::ring_early<mlx5::queue_place::gpu>(queue.doorbell, queue.doorbell_record, out.end, out.doorbell);
    else
        mlx5::ring_early<mlx5::queue_place::host>(queue.doorbell, queue.doorbell_record, out.end, out.doorbell);
    return out;
}

/// After the record, so that one doorbell comes after it.
ACCEL_HOST_DEVICE inline void ring_again(engine by, mlx5::queue_place place, const owned_sends& queue,
                                         const posted_request& posted) noexcept {
    if (by == engine::proxy) return;
    if (place == mlx5::queue_place::gpu)
        mlx5::ring_again<mlx5::queue_place::gpu>(queue.doorbell, posted.doorbell);
    else
        mlx5::ring_again<mlx5::queue_place::host>(queue.doorbell, posted.doorbell);
}

}  // namespace accel::device::detail
