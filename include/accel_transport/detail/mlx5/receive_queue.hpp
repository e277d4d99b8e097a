// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/detail/mlx5/layout.hpp>

#include <cstddef>
#include <cstdint>

/// Receives without memory, on mlx5 queues, by a CPU or a GPU: what takes the immediate data of writes. Each
/// is the same, so it is written once and posted by counting.
namespace accel::mlx5 {

/// A receive queue of one queue pair, as its poster sees it: one thread at a time. Owns nothing.
struct receive_queue_ref {
    std::byte* ring = nullptr;
    std::uint32_t count = 0;  ///< receives; a power of two
    std::uint32_t stride = 0;
    be32* doorbell_record = nullptr;  ///< the receive queue's word of it
    std::uint32_t posted = 0;         ///< free-running
};

/// A shared receive queue, as its poster sees it: one thread at a time. Its receives are a chain, in which
/// the adapter goes ahead; those it has used are hung on at the end.
struct shared_receive_queue_ref {
    std::byte* ring = nullptr;
    std::uint32_t stride = 0;
    std::uint16_t head = 0;  ///< where the chain begins at first
    std::uint16_t tail = 0;  ///< where it ends; never posted
    be32* doorbell_record = nullptr;
    std::uint32_t posted = 0;  ///< free-running
};

ACCEL_HOST_DEVICE inline void write_empty(std::byte* first_range) noexcept {
    *reinterpret_cast<data_segment*>(first_range) = data_segment{be32{}, to_be32(no_key), be64{}};
}
ACCEL_HOST_DEVICE inline next_segment& link_of(const shared_receive_queue_ref& queue, std::uint16_t index) noexcept {
    return *reinterpret_cast<next_segment*>(queue.ring + std::size_t{index} * queue.stride);
}

/// Makes every receive an empty one. Before the first is posted.
ACCEL_HOST_DEVICE inline void write_empty_receives(const receive_queue_ref& queue) noexcept {
    for (std::uint32_t i = 0; i < queue.count; ++i) write_empty(queue.ring + std::size_t{i} * queue.stride);
}
/// Likewise. Returns how many can be posted at once: all of the chain but its end.
ACCEL_HOST_DEVICE inline std::uint32_t write_empty_receives(const shared_receive_queue_ref& queue) noexcept {
    std::uint32_t count = 0;
    for (std::uint16_t i = queue.head; count <= 0xffffU; ++count) {
        next_segment& link = link_of(queue, i);
        write_empty(reinterpret_cast<std::byte*>(&link + 1));
        if (i == queue.tail) break;
        i = from_be(link.next);
    }
    return count;
}

/// Posts `more`; the caller knows that this number is free.
ACCEL_HOST_DEVICE inline void post_empty(receive_queue_ref& queue, std::uint32_t more) noexcept {
    queue.posted += more;
    order_receive_before_doorbell_record();
    store_whole(queue.doorbell_record, to_be32(queue.posted & 0xffffU));
}
/// Likewise.
ACCEL_HOST_DEVICE inline void post_empty(shared_receive_queue_ref& queue, std::uint32_t more) noexcept {
    queue.posted += more;
    order_receive_before_doorbell_record();
    store_whole(queue.doorbell_record, to_be32(queue.posted));
}

/// The receive that a completion names has been used: it may be posted again.
ACCEL_HOST_DEVICE inline void take_back(shared_receive_queue_ref& queue, std::uint16_t index) noexcept {
    link_of(queue, queue.tail).next = to_be16(index);
    queue.tail = index;
}

}  // namespace accel::mlx5
