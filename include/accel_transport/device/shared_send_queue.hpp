#pragma once

#include <accel_transport/device/atomics.hpp>
#include <accel_transport/device/send_queue.hpp>

/// One mlx5 send queue for many threads of a GPU, or of the host. Each reserves and fills by itself, at once
/// with the others; doorbells are rung by one at a time, and in the order of the ring: the first to announce
/// a request tells the adapter of all that are whole, up to the first that is not, until nobody has announced
/// another meanwhile. Nobody waits for another; `again` is the only way not to succeed.
namespace accel::mlx5 {

/// Counters in blocks, free-running.
struct shared_send_queue_state {
    std::uint32_t reserved = 0;
    std::uint32_t published = 0;  ///< the adapter has been told of all before; of whoever rings
    std::uint32_t announced = 0;  ///< requests, since somebody rings; 0: nobody does
    std::uint32_t released = 0;   ///< of whoever takes completions
};

/// What is known of a request that is whole, by its first block.
struct whole_request {
    std::uint64_t doorbell = 0;  ///< so that nobody has to read the ring, which a GPU would do over PCIe
    std::uint32_t end = 0;       ///< of its blocks
    std::uint32_t reserved = 0;
};

/// A send queue as all its posters see it. Owns nothing.
struct shared_send_queue_ref {
    /// Ring, doorbell and the number of the queue pair; its own `state` is not used.
    send_queue_ref queue;
    shared_send_queue_state* state = nullptr;
    whole_request* whole = nullptr;  ///< one a block
};

/// Before the first request: no block begins a request that is whole.
ACCEL_HOST_DEVICE inline void clear_whole(const shared_send_queue_ref& shared) noexcept {
    const std::uint32_t first = shared.state->reserved;
    for (std::uint32_t block = first; block - first < shared.queue.blocks; ++block) {
        shared.whole[block & (shared.queue.blocks - 1)].end = block;
    }
}

/// Step 1, as for a queue of one poster.
[[nodiscard]] ACCEL_HOST_DEVICE inline status reserve(const shared_send_queue_ref& shared,
                                                      std::uint32_t blocks, std::uint32_t& first) noexcept {
    std::uint32_t seen = device::load_relaxed(&shared.state->reserved);
    do {
        const std::uint32_t released = device::load_acquire(&shared.state->released);
        if (shared.queue.blocks - (seen - released) < blocks) return status::again;
    } while (!device::compare_exchange_relaxed(&shared.state->reserved, seen, seen + blocks));
    first = seen;
    return status::ok;
}

namespace detail {

ACCEL_HOST_DEVICE inline whole_request& whole_at(const shared_send_queue_ref& shared,
                                                 std::uint32_t block) noexcept {
    return shared.whole[block & (shared.queue.blocks - 1)];
}

/// Where the request ends that begins at `block`, if it is whole: the word holds a number of this time round.
/// Else `block` itself.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t end_of(const shared_send_queue_ref& shared,
                                                            std::uint32_t block) noexcept {
    const std::uint32_t end = device::load_acquire(&whole_at(shared, block).end);
    return end - block <= blocks_of(most_units) ? end : block;
}

/// Tells the adapter of everything that is whole. Requests of other threads happened before, by their
/// announcement, so the fence before the record orders them as well.
ACCEL_HOST_DEVICE inline void publish_whole(const shared_send_queue_ref& shared) noexcept {
    const std::uint32_t from = device::load_relaxed(&shared.state->published);
    std::uint32_t last = from;
    std::uint32_t end = end_of(shared, from);
    if (end == from) return;
    for (std::uint32_t next = end_of(shared, end); next != end; next = end_of(shared, end)) {
        last = end;
        end = next;
    }
    // Once the record counts them, an earlier doorbell may make the adapter execute them, and others may
    // write where they were: all that is needed of them is read before.
    const std::uint64_t doorbell = whole_at(shared, last).doorbell;
    device::store_release(&shared.state->published, end);
    publish(shared.queue, end);
    ring_with(shared.queue, doorbell);
}

/// Rings, as the one who does: `announced` requests have been announced since.
ACCEL_HOST_DEVICE inline void ring_until_quiet(const shared_send_queue_ref& shared,
                                               std::uint32_t announced) noexcept {
    while (announced != 0) {
        publish_whole(shared);
        announced = device::fetch_add(&shared.state->announced, 0U - announced) - announced;
    }
}

}  // namespace detail

/// Between steps 2 and 3: the request at blocks [first, end), which this thread has reserved and filled, is
/// whole.
ACCEL_HOST_DEVICE inline void mark_whole(const shared_send_queue_ref& shared, std::uint32_t first,
                                         std::uint32_t end, std::uint64_t doorbell) noexcept {
    whole_request& mine = detail::whole_at(shared, first);
    mine.doorbell = doorbell;
    device::store_release(&mine.end, end);
}

/// Steps 3 and 4, after `mark_whole`. Returns when the adapter has been told of the request, or a thread that
/// rings will tell it.
ACCEL_HOST_DEVICE inline void announce(const shared_send_queue_ref& shared) noexcept {
    if (device::fetch_add(&shared.state->announced, 1) == 0) detail::ring_until_quiet(shared, 1);
}

/// All steps, for one request.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const shared_send_queue_ref& shared,
                                                   const work_request& request) noexcept {
    const request_size size = size_of(request);
    if (size.units > most_units) return status::message_too_large;
    const std::uint32_t blocks = blocks_of(size.units);
    // Whoever is to ring says so before its stores to the ring are under way: what they cost is then paid
    // once, at the fence before the record.
    const bool rings = device::fetch_add(&shared.state->announced, 1) == 0;
    std::uint32_t first = 0;
    const status taken = reserve(shared, blocks, first);
    if (taken == status::ok) {
        fill(shared.queue, first, request, size);
        whole_request& mine = detail::whole_at(shared, first);
        mine.doorbell = doorbell_of(shared.queue, first, request, size);
        if (rings) {
            device::store_relaxed(&mine.end, first + blocks);
        } else {
            device::store_release(&mine.end, first + blocks);
        }
    }
    if (rings) {
        detail::ring_until_quiet(shared, 1);
    } else if (taken == status::ok) {
        announce(shared);
    }
    return taken;
}

/// Step 5, by one thread at a time: the request that begins at block `counter` (16 bits, from its completion)
/// and all before it are done. False: no request that is under way begins there.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool release(const shared_send_queue_ref& shared,
                                                    std::uint16_t counter) noexcept {
    const std::uint32_t released = device::load_relaxed(&shared.state->released);
    const auto distance = static_cast<std::uint16_t>(counter - static_cast<std::uint16_t>(released));
    if (distance >= device::load_acquire(&shared.state->published) - released) return false;
    const std::uint32_t first = released + distance;
    const std::uint32_t end = detail::end_of(shared, first);
    if (end == first) return false;
    device::store_release(&shared.state->released, end);
    return true;
}

}  // namespace accel::mlx5
