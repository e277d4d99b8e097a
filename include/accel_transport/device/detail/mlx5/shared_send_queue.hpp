// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/device/detail/atomics.hpp>

/// One mlx5 send queue for many threads of a GPU, or of the host. Each reserves and fills by itself, at once
/// with the others; doorbells are rung by one at a time, and in the order of the ring: the first to announce
/// a request tells the adapter of all that are ready, up to the first that is not, until nobody has announced
/// another meanwhile. Nobody waits for another; `again` is the only way not to succeed.
namespace accel::mlx5 {

/// Counters in WQEBBs, free-running.
struct shared_send_queue_state {
    /// Below: what is reserved. Above: requests announced since somebody rings; 0: nobody does. One word, so
    /// that one step takes both.
    std::uint64_t reserved = 0;
    std::uint32_t published = 0;  ///< the adapter has been told of all before; of whoever rings
    std::uint32_t released = 0;   ///< of whoever takes completions
};

/// A request that is ready to be published, by its first WQEBB.
struct ready_request {
    std::uint64_t doorbell = 0;  ///< so that nobody has to read the ring, which a GPU would do over PCIe
    std::uint32_t end = 0;       ///< of its WQEBBs
    std::uint32_t reserved = 0;
};

/// A send queue as all its posters see it. Owns nothing.
struct shared_send_queue_ref {
    /// Ring, doorbell and the number of the queue pair; its own `state` is not used.
    send_queue_ref queue;
    shared_send_queue_state* state = nullptr;
    ready_request* ready_requests = nullptr;  ///< one per WQEBB
};

inline constexpr std::uint64_t one_announced = std::uint64_t{1} << 32;

/// The counters as a poster has seen them lately. Reading them ahead of time makes posting quicker. `released`
/// has to have been read after what made it so (by an acquiring load, or under a lock with it).
struct counter_snapshot {
    std::uint64_t reserved = 0;
    std::uint32_t released = 0;
};
[[nodiscard]] ACCEL_HOST_DEVICE inline counter_snapshot snapshot_of(const shared_send_queue_ref& shared) noexcept {
    const std::uint32_t released = device::detail::load_acquire(&shared.state->released);
    return {device::detail::load_relaxed(&shared.state->reserved), released};
}

/// Before the first request: no WQEBB begins a request that is ready.
ACCEL_HOST_DEVICE inline void clear_ready_requests(const shared_send_queue_ref& shared) noexcept {
    const auto first = static_cast<std::uint32_t>(shared.state->reserved);
    for (std::uint32_t wqebb = first; wqebb - first < shared.queue.wqebbs; ++wqebb)
        shared.ready_requests[wqebb & (shared.queue.wqebbs - 1)].end = wqebb;
}

ACCEL_HOST_DEVICE inline ready_request& ready_at(const shared_send_queue_ref& shared, std::uint32_t wqebb) noexcept {
    return shared.ready_requests[wqebb & (shared.queue.wqebbs - 1)];
}

/// Signed: `released` may be older than what is reserved, or newer.
ACCEL_HOST_DEVICE inline bool has_room(const shared_send_queue_ref& shared, std::uint32_t wqebbs,
                                       std::uint32_t reserved, std::uint32_t released) noexcept {
    const auto used = static_cast<std::int32_t>(reserved - released);
    return used <= static_cast<std::int32_t>(shared.queue.wqebbs - wqebbs);
}

/// Takes WQEBBs, and with `announced` of `one_announced` announces a request at once. `seen` becomes what was
/// there; it may be a guess.
[[nodiscard]] ACCEL_HOST_DEVICE inline status reserve(const shared_send_queue_ref& shared, std::uint32_t wqebbs,
                                                      std::uint64_t announced, counter_snapshot& seen) noexcept {
    std::uint64_t next = 0;
    do {
        const auto first = static_cast<std::uint32_t>(seen.reserved);
        if (!has_room(shared, wqebbs, first, seen.released)) {
            seen.released = device::detail::load_acquire(&shared.state->released);
            if (!has_room(shared, wqebbs, first, seen.released)) return status::again;
        }
        // A carry out of the lower half is none of the upper one's.
        next = ((seen.reserved & ~std::uint64_t{0xffff'ffffU}) | (first + wqebbs)) + announced;
    } while (!device::detail::compare_exchange(&shared.state->reserved, seen.reserved, next));
    return status::ok;
}

/// Where the request ends that begins at `wqebb`, if it is ready: the word holds a number of this time round.
/// Else `wqebb` itself.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t end_of(const shared_send_queue_ref& shared,
                                                            std::uint32_t wqebb) noexcept {
    const std::uint32_t end = device::detail::load_acquire(&ready_at(shared, wqebb).end);
    return end - wqebb <= wqebbs_of(max_ds) ? end : wqebb;
}

/// Tells the adapter of everything that is ready. Requests of other threads happened before, by their
/// announcement, so the fence before the record orders them as well.
ACCEL_HOST_DEVICE inline void publish_ready(const shared_send_queue_ref& shared) noexcept {
    const std::uint32_t from = device::detail::load_relaxed(&shared.state->published);
    std::uint32_t last = from;
    std::uint32_t end = end_of(shared, from);
    if (end == from) return;
    for (std::uint32_t next = end_of(shared, end); next != end; next = end_of(shared, end)) {
        last = end;
        end = next;
    }
    // Once the record counts them, an earlier doorbell may make the adapter execute them, and others may
    // write where they were: all that is needed of them is read before.
    const std::uint64_t doorbell = ready_at(shared, last).doorbell;
    device::detail::store_release(&shared.state->published, end);
    publish(shared.queue, end);
    ring_with(shared.queue, doorbell);
}

/// The same for one request, which is the next one: its thread knows it.
ACCEL_HOST_DEVICE inline void publish_next(const shared_send_queue_ref& shared, const ready_request& request) noexcept {
    order_wqe_before_doorbell_record();
    device::detail::store_fenced(&shared.state->published, request.end);
    store_whole(shared.queue.doorbell_record, to_be32(request.end & 0xffffU));
    ring_with(shared.queue, request.doorbell);
}

/// Rings, as the one who does; `announced` requests have been announced, and those are done.
ACCEL_HOST_DEVICE inline void ring_until_quiet(const shared_send_queue_ref& shared, std::uint64_t announced) noexcept {
    for (;;) {
        const std::uint64_t before = device::detail::fetch_add(&shared.state->reserved, 0U - announced * one_announced);
        announced = (before >> 32) - announced;
        if (announced == 0) return;
        publish_ready(shared);
    }
}

/// Step 1, as for a queue of one poster.
[[nodiscard]] ACCEL_HOST_DEVICE inline status reserve(const shared_send_queue_ref& shared, std::uint32_t wqebbs,
                                                      std::uint32_t& first) noexcept {
    counter_snapshot seen = snapshot_of(shared);
    const status taken = reserve(shared, wqebbs, 0, seen);
    first = static_cast<std::uint32_t>(seen.reserved);
    return taken;
}

/// Between steps 2 and 3: the request at WQEBBs [first, end), which this thread has reserved and filled, is ready.
ACCEL_HOST_DEVICE inline void mark_ready(const shared_send_queue_ref& shared, std::uint32_t first, std::uint32_t end,
                                         std::uint64_t doorbell) noexcept {
    ready_request& mine = ready_at(shared, first);
    mine.doorbell = doorbell;
    device::detail::store_release(&mine.end, end);
}

/// Steps 3 and 4, after `mark_ready`. Returns when the adapter has been told of the request, or a thread that
/// rings will tell it.
ACCEL_HOST_DEVICE inline void announce(const shared_send_queue_ref& shared) noexcept {
    if ((device::detail::fetch_add(&shared.state->reserved, one_announced) >> 32) != 0) return;
    publish_ready(shared);
    ring_until_quiet(shared, 1);
}

/// All steps, for one request. With `signal_every`, one request per about this number of WQEBBs asks for a
/// completion, whatever `request` says. `seen` may be old, and is kept up.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const shared_send_queue_ref& shared, work_request& request,
                                                   std::uint32_t signal_every, counter_snapshot& seen) noexcept {
    const request_size size = size_of(request);
    if (size.ds > max_ds) return status::message_too_large;
    const std::uint32_t wqebbs = wqebbs_of(size.ds);
    // Where nobody else posts this request is the next one. Asked on the way to the reservation: an answer
    // that is old by then is another number.
    const std::uint32_t published = device::detail::load_relaxed(&shared.state->published);
    // Announced at once with the reservation: where nobody else posts, that is the only step before the ring.
    const status taken = reserve(shared, wqebbs, one_announced, seen);
    if (taken != status::ok) return taken;
    const auto first = static_cast<std::uint32_t>(seen.reserved);
    const bool rings = (seen.reserved >> 32) == 0;
    if (signal_every != 0) {
        const bool due = first / signal_every != (first + wqebbs) / signal_every;
        request.flags = due ? flag_signalled : std::uint8_t{0};
    }
    fill(shared.queue, first, request, size);
    const ready_request mine{doorbell_of(shared.queue, first, request, size), first + wqebbs, 0};
    seen.reserved = (seen.reserved & ~std::uint64_t{0xffff'ffffU}) | mine.end;
    if (!rings) {
        mark_ready(shared, first, mine.end, mine.doorbell);
        announce(shared);
        return status::ok;
    }
    ready_request& told = ready_at(shared, first);
    told.doorbell = mine.doorbell;
    device::detail::store_fenced(&told.end, mine.end);
    if (published == first)
        publish_next(shared, mine);
    else
        publish_ready(shared);
    ring_until_quiet(shared, 1);
    return status::ok;
}
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const shared_send_queue_ref& shared,
                                                   const work_request& request) noexcept {
    work_request copy = request;
    counter_snapshot seen = snapshot_of(shared);
    return post(shared, copy, 0, seen);
}

/// Step 5, by one thread at a time: the request that begins at WQEBB `counter` (16 bits, from its completion)
/// and all before it are done. False: no request that is under way begins there.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool release(const shared_send_queue_ref& shared,
                                                    std::uint16_t counter) noexcept {
    const std::uint32_t released = device::detail::load_relaxed(&shared.state->released);
    const auto distance = static_cast<std::uint16_t>(counter - static_cast<std::uint16_t>(released));
    // A request that has completed was published, although this thread may not have seen that yet. The acquire makes
    // the stores of those who published visible before their WQEBBs are used again.
    (void)device::detail::load_acquire(&shared.state->published);
    const std::uint32_t first = released + distance;
    const std::uint32_t end = end_of(shared, first);
    if (end == first) return false;
    device::detail::store_release(&shared.state->released, end);
    return true;
}

}  // namespace accel::mlx5
