// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/detail/mlx5/layout.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>

/// Posting work requests to an mlx5 send queue, by a CPU or a GPU: reserve → fill → publish → ring; and when
/// the completion has come, release. No step waits.
namespace accel::mlx5 {

/// A range of registered memory, or, for a request that carries its bytes, of any memory the poster reads.
struct local_range {
    std::uint64_t address = 0;
    std::uint32_t length = 0;
    std::uint32_t key = 0;
};

/// One work request to be.
struct work_request {
    opcode operation = opcode::write;
    std::uint8_t flags = 0;      ///< of `flag_…`
    bool carries_bytes = false;  ///< the ranges are copied into the request
    std::uint32_t ranges = 0;    ///< how many
    const local_range* first = nullptr;
    be32 immediate{};  ///< as it travels
    std::uint32_t remote_key = 0;
    std::uint64_t remote_address = 0;
    std::uint64_t compare = 0;      ///< of `compare_swap`
    std::uint64_t swap_or_add = 0;  ///< of an atomic operation
};

/// Counters of a send queue, in WQEBBs, free-running. Reachable by whoever posts.
struct send_queue_state {
    std::uint32_t reserved = 0;  ///< handed out to be filled
    std::uint32_t released = 0;  ///< the adapter is done with all before
};

/// A send queue as its poster sees it: one thread at a time. Owns nothing.
struct send_queue_ref {
    std::byte* ring = nullptr;
    std::uint32_t wqebbs = 0;  ///< a power of two
    std::uint32_t queue_pair = 0;
    be32* doorbell_record = nullptr;    ///< the send queue's word of it
    std::uint64_t* doorbell = nullptr;  ///< the register; shared with other queue pairs
    send_queue_state* state = nullptr;
};

ACCEL_HOST_DEVICE inline bool is_atomic(opcode operation) noexcept {
    return operation == opcode::compare_swap || operation == opcode::fetch_add;
}
ACCEL_HOST_DEVICE inline bool names_remote_memory(opcode operation) noexcept {
    return operation == opcode::write || operation == opcode::write_immediate || operation == opcode::read ||
           is_atomic(operation);
}
ACCEL_HOST_DEVICE inline bool has_immediate(opcode operation) noexcept {
    return operation == opcode::write_immediate || operation == opcode::send_immediate;
}

/// How much room a request takes.
struct request_size {
    std::uint32_t ds = 0;       ///< at most `max_ds`, or it cannot be posted
    std::uint32_t carried = 0;  ///< bytes that lie in it
};

/// Ranges without bytes take no room.
ACCEL_HOST_DEVICE_INLINE request_size size_of(const work_request& request) noexcept {
    request_size size;
    size.ds = 1U + (names_remote_memory(request.operation) ? 1U : 0U) + (is_atomic(request.operation) ? 1U : 0U);
    if (request.carries_bytes) {
        for (std::uint32_t i = 0; i < request.ranges; ++i) size.carried += request.first[i].length;
        if (size.carried != 0) size.ds += (size.carried + 4 + ds_bytes - 1) / ds_bytes;
        return size;
    }
    for (std::uint32_t i = 0; i < request.ranges; ++i) size.ds += request.first[i].length != 0 ? 1U : 0U;
    return size;
}
ACCEL_HOST_DEVICE inline std::uint32_t wqebbs_of(std::uint32_t ds) noexcept {
    return (ds * ds_bytes + wqebb_bytes - 1) / wqebb_bytes;
}

/// WQEBBs that nobody uses.
ACCEL_HOST_DEVICE inline std::uint32_t free_wqebbs(const send_queue_ref& queue) noexcept {
    return queue.wqebbs - (queue.state->reserved - queue.state->released);
}

/// Step 1: takes `wqebbs` of the ring; `first` is the number of the first. `again`: there is no such room, and
/// nothing was taken.
[[nodiscard]] ACCEL_HOST_DEVICE inline status reserve(const send_queue_ref& queue, std::uint32_t wqebbs,
                                                      std::uint32_t& first) noexcept {
    if (free_wqebbs(queue) < wqebbs) return status::again;
    first = queue.state->reserved;
    queue.state->reserved = first + wqebbs;
    return status::ok;
}

ACCEL_HOST_DEVICE inline be32 opmod_idx_opcode_of(std::uint32_t first, opcode operation) noexcept {
    return to_be32(((first & 0xffffU) << 8) | static_cast<std::uint32_t>(operation));
}
ACCEL_HOST_DEVICE inline be32 qpn_ds_of(const send_queue_ref& queue, std::uint32_t ds) noexcept {
    return to_be32((queue.queue_pair << 8) | ds);
}

/// Writes a request segment by segment; if it `Wraps`, goes on at the start of the ring where that ends.
template <bool Wraps>
class ring_writer {
  public:
    ACCEL_HOST_DEVICE ring_writer(const send_queue_ref& queue, std::uint32_t wqebb) noexcept
        : begin_(queue.ring),
          end_(queue.ring + std::size_t{queue.wqebbs} * wqebb_bytes),
          at_(queue.ring + std::size_t{wqebb & (queue.wqebbs - 1)} * wqebb_bytes) {}

    template <class Segment>
    ACCEL_HOST_DEVICE void put(const Segment& segment) noexcept {
        static_assert(sizeof(Segment) == ds_bytes);
#if defined(__CUDA_ARCH__)
        // In one store: over a bus each is a packet.
        uint4 words;
        __builtin_memcpy(&words, &segment, ds_bytes);
        *reinterpret_cast<uint4*>(at_) = words;
#else
        *reinterpret_cast<Segment*>(at_) = segment;
#endif
        advance(ds_bytes);
    }
    /// Writes an atomic segment that compares nothing. The adapter ignores its second half, which stays as it is.
    ACCEL_HOST_DEVICE void put_addend(be64 add) noexcept {
        *reinterpret_cast<be64*>(at_) = add;
        advance(ds_bytes);
    }
    ACCEL_HOST_DEVICE void put_length_of_bytes(std::uint32_t bytes) noexcept {
        *reinterpret_cast<be32*>(at_) = to_be32(bytes | inline_marker);
        at_ += 4;
    }
    ACCEL_HOST_DEVICE void put_bytes(const std::byte* from, std::uint32_t bytes) noexcept {
        const auto room = static_cast<std::uint32_t>(end_ - at_);
        if (Wraps && bytes >= room) {
            copy(at_, from, room);
            at_ = begin_;
            from += room;
            bytes -= room;
        }
        copy(at_, from, bytes);
        at_ += bytes;
    }

  private:
    ACCEL_HOST_DEVICE void advance(std::uint32_t bytes) noexcept {
        at_ += bytes;
        if (Wraps && at_ == end_) at_ = begin_;
    }
    /// In pieces that need no call: most requests carry a few dozen bytes. A GPU's loads must be aligned, and
    /// bytes that are carried lie at multiples of 4 only.
    ACCEL_HOST_DEVICE static void copy(std::byte* to, const std::byte* from, std::uint32_t bytes) noexcept {
#if defined(__CUDA_ARCH__)
        const bool words = ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) & 3U) == 0;
        const auto put_word = [&] {
            *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(from);
            to += 4;
            from += 4;
            bytes -= 4;
        };
        while (words && bytes >= 4 && (reinterpret_cast<std::uintptr_t>(to) & (ds_bytes - 1)) != 0) put_word();
        for (; words && bytes >= ds_bytes; bytes -= ds_bytes, to += ds_bytes, from += ds_bytes) {
            const auto* const four = reinterpret_cast<const std::uint32_t*>(from);
            *reinterpret_cast<uint4*>(to) = uint4{four[0], four[1], four[2], four[3]};
        }
        while (words && bytes >= 4) put_word();
#else
        for (; bytes >= 32; bytes -= 32, to += 32, from += 32) __builtin_memcpy(to, from, 32);
        for (; bytes >= 8; bytes -= 8, to += 8, from += 8) __builtin_memcpy(to, from, 8);
#endif
        for (; bytes > 0; --bytes) *to++ = *from++;
    }

    std::byte* begin_;
    std::byte* end_;
    std::byte* at_;
};

template <bool Wraps>
ACCEL_HOST_DEVICE_INLINE void fill(const send_queue_ref& queue, std::uint32_t first, const work_request& request,
                                   const request_size& size) noexcept {
    ring_writer<Wraps> out(queue, first);
    control_segment control{};
    control.opmod_idx_opcode = opmod_idx_opcode_of(first, request.operation);
    control.qpn_ds = qpn_ds_of(queue, size.ds);
    control.flags = request.flags;
    if (has_immediate(request.operation)) control.immediate = request.immediate;
    out.put(control);
    if (names_remote_memory(request.operation))
        out.put(remote_segment{to_be64(request.remote_address), to_be32(request.remote_key), be32{}});
    if (request.operation == opcode::compare_swap)
        out.put(atomic_segment{to_be64(request.swap_or_add), to_be64(request.compare)});
    else if (request.operation == opcode::fetch_add)
        out.put_addend(to_be64(request.swap_or_add));
    if (size.carried != 0) out.put_length_of_bytes(size.carried);
    for (std::uint32_t i = 0; i < request.ranges; ++i) {
        const local_range& range = request.first[i];
        if (range.length == 0) continue;
        if (request.carries_bytes) {
            // The ranges are memory of the poster, named as numbers like those of the adapter.
            // NOLINTNEXTLINE(performance-no-int-to-ptr)
            out.put_bytes(reinterpret_cast<const std::byte*>(range.address), range.length);
            continue;
        }
        const std::uint32_t length = is_atomic(request.operation) ? 8U : range.length;
        out.put(data_segment{to_be32(length), to_be32(range.key), to_be64(range.address)});
    }
}

/// Seldom: not worth a place in every caller.
ACCEL_HOST_DEVICE inline void fill_wrapped(const send_queue_ref& queue, std::uint32_t first,
                                           const work_request& request, const request_size& size) noexcept {
    fill<true>(queue, first, request, size);
}

/// Step 2: writes a request of `size` at WQEBB `first`, which has been reserved. Ring memory only: the
/// adapter does not look yet.
ACCEL_HOST_DEVICE_INLINE void fill(const send_queue_ref& queue, std::uint32_t first, const work_request& request,
                                   const request_size& size) noexcept {
    const bool wraps = (first & (queue.wqebbs - 1)) + wqebbs_of(size.ds) > queue.wqebbs;
    if (wraps) return fill_wrapped(queue, first, request, size);
    fill<false>(queue, first, request, size);
}

/// Step 3: all requests before WQEBB `end` are the adapter's.
template <queue_place Place = queue_place::host>
ACCEL_HOST_DEVICE inline void publish(const send_queue_ref& queue, std::uint32_t end) noexcept {
    order_wqe_before_doorbell_record<Place>();
    store_whole(queue.doorbell_record, to_be32(end & 0xffffU));
}

/// The value for the doorbell: the first 8 bytes of the last request, which begins at WQEBB `last`. They may
/// change as soon as others post to the same queue and the request has been published.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint64_t doorbell_of(const send_queue_ref& queue,
                                                                 std::uint32_t last) noexcept {
    const std::byte* const start = queue.ring + std::size_t{last & (queue.wqebbs - 1)} * wqebb_bytes;
    return *reinterpret_cast<const std::uint64_t*>(start);
}
/// The same without reading the ring, for whoever still has the request: a GPU would read host memory.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint64_t doorbell_of(const send_queue_ref& queue, std::uint32_t last,
                                                                 const work_request& request,
                                                                 const request_size& size) noexcept {
    const auto low = static_cast<std::uint32_t>(opmod_idx_opcode_of(last, request.operation));
    const auto high = static_cast<std::uint32_t>(qpn_ds_of(queue, size.ds));
    return (std::uint64_t{high} << 32) | low;
}
template <queue_place Place = queue_place::host>
ACCEL_HOST_DEVICE inline void ring_with(const send_queue_ref& queue, std::uint64_t value) noexcept {
    order_doorbell_record_before_doorbell<Place>();
    store_whole(queue.doorbell, value);
    flush_doorbell();
}

/// Steps 3 and 4 the other way round, which takes one fence: all requests before WQEBB `end` are the adapter's, and
/// `value` is their doorbell. The adapter takes the number of the request from the doorbell; the record tells it what
/// there is when it has lost doorbells. NVIDIA's GPUNetIO posts so on ConnectX and BlueField, wherever the queue lies
/// (doca_gpunetio_dev_verbs_qp.cuh, `submit_db`). `ring_again` has to follow, so that one doorbell comes after the
/// record.
template <queue_place Place>
ACCEL_HOST_DEVICE inline void ring_early(std::uint64_t* doorbell, be32* record, std::uint32_t end,
                                         std::uint64_t value) noexcept {
    store_doorbell<Place>(doorbell, value);
    store_whole(record, to_be32(end & 0xffffU));
}
template <queue_place Place>
ACCEL_HOST_DEVICE inline void ring_again(std::uint64_t* doorbell, std::uint64_t value) noexcept {
    store_doorbell<Place>(doorbell, value);
}

/// Step 4: tells the adapter. `last` is the first WQEBB of the last request that was published.
ACCEL_HOST_DEVICE inline void ring(const send_queue_ref& queue, std::uint32_t last) noexcept {
    ring_with(queue, doorbell_of(queue, last));
}

/// All four steps, for one request.
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status post(const send_queue_ref& queue, const work_request& request) noexcept {
    const request_size size = size_of(request);
    if (size.ds > max_ds) return status::message_too_large;
    const std::uint32_t wqebbs = wqebbs_of(size.ds);
    std::uint32_t first = 0;
    if (const status taken = reserve(queue, wqebbs, first); taken != status::ok) return taken;
    fill(queue, first, request, size);
    publish(queue, first + wqebbs);
    ring_with(queue, doorbell_of(queue, first, request, size));
    return status::ok;
}

/// Step 5: the request that begins at WQEBB `counter` (16 bits, from its completion) and all before it are
/// done. False: no request that is under way begins there.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool release(const send_queue_ref& queue, std::uint16_t counter) noexcept {
    const std::uint32_t released = queue.state->released;
    const auto distance = static_cast<std::uint16_t>(counter - static_cast<std::uint16_t>(released));
    if (distance >= queue.state->reserved - released) return false;
    const std::uint32_t first = released + distance;
    const std::byte* const start = queue.ring + std::size_t{first & (queue.wqebbs - 1)} * wqebb_bytes;
    const auto* const control = reinterpret_cast<const control_segment*>(start);
    queue.state->released = first + wqebbs_of(from_be(control->qpn_ds) & max_ds);
    return true;
}

/// Step 5 for whoever knows where the request ends that is done, and need not read the ring: all before WQEBB
/// `end` is. False: that much is not under way.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool release_to(const send_queue_ref& queue, std::uint32_t end) noexcept {
    const std::uint32_t released = queue.state->released;
    if (end - released > queue.state->reserved - released) return false;
    queue.state->released = end;
    return true;
}

}  // namespace accel::mlx5
