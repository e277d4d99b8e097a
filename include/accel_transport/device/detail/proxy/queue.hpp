// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/device/detail/atomics.hpp>
#include <accel_transport/device/detail/proxy/tagged_quad.hpp>

/// Posting for a GPU that cannot reach the adapter's queues: descriptors go into a ring in pinned memory, and
/// a thread of the host posts them on whatever RDMA device there is (`kernels/proxy/proxy.hpp`). Completions come
/// back through another ring. No step waits. With a CPU thread in the kernel's place it is the same code.
namespace accel::proxy {

/// A work request on its way to the thread that posts it.
struct alignas(64) send_descriptor {
    tagged_quad quads[4];
};
/// A completion on its way back.
using completion_entry = tagged_quad;

static_assert(sizeof(send_descriptor) == 64);

/// Most entries of a ring: what 16 bits of a completion's `counter` tell apart.
inline constexpr std::uint32_t max_entries = 1U << 15;

/// Counters of a send ring, in descriptors, free-running. Memory of whoever posts: on a GPU its own.
struct send_queue_state {
    std::uint32_t reserved = 0;  ///< handed out to be filled
    std::uint32_t released = 0;  ///< as last seen: looking costs a GPU a way across PCIe
};

/// A send ring as its posters see it, any number of threads. Owns nothing.
struct send_queue_ref {
    send_descriptor* ring = nullptr;  ///< pinned
    std::uint32_t count = 0;          ///< a power of two, at most `max_entries`
    std::uint32_t queue_pair = 0;     ///< its number, or the name under which the proxy was given it
    send_queue_state* state = nullptr;
    const std::uint32_t* released = nullptr;  ///< pinned: all before have completed; the proxy writes it
};

/// Memory of the taker: on a GPU its own.
struct completion_queue_state {
    std::uint32_t taken = 0;  ///< free-running
};

/// A completion ring as its taker sees it: one thread at a time. Owns nothing.
struct completion_queue_ref {
    completion_entry* entries = nullptr;  ///< pinned
    std::uint32_t count = 0;              ///< a power of two
    std::uint32_t* consumed = nullptr;    ///< pinned: the proxy reads it, and never writes past it
    completion_queue_state* state = nullptr;
    /// Pinned: the first failure, as in `mlx5::completion_queue_state`. Stays, and may be read at any time.
    std::uint64_t* first_failure = nullptr;
};

/// Why the proxy did not post a descriptor: the vendor's syndrome beside `mlx5::syndrome::local_queue_pair`.
enum class refusal : std::uint8_t {
    none = 0,
    operation = 0xe1,   ///< none that it knows
    flags = 0xe2,       ///< none that it knows, or something where there should be nothing
    queue_pair = 0xe3,  ///< it names another queue pair than the ring's
    length = 0xe4,      ///< longer than the device sends
    device = 0xe5,      ///< the device's driver did not take it
    lost = 0xe6,        ///< the completion queue or the device has failed
    answer = 0xe7,      ///< an answer in no slot of the session, or longer than that
};

/// In place of an operation: an answer in its slot, header and payload, whose way the proxy knows beforehand
/// (`answer_way`). The descriptor's first quad has slot and length; the others are not written.
inline constexpr std::uint32_t answer_mark = 0xa5;

/// The way of answers of one session. The host's own memory, written before its kernels hear of the session.
struct answer_way {
    std::uint64_t headers = 0;  ///< of this end
    std::uint64_t stride = 0;
    std::uint32_t key = 0;
    std::uint32_t slots = 0;    ///< 0: there is no such way
    std::uint64_t longest = 0;  ///< header and payload, bytes
    std::uint64_t peer_headers = 0;
    std::uint64_t peer_stride = 0;
    std::uint32_t peer_key = 0;
    std::uint32_t plain = 0;  ///< 1: without immediate data
};

/// The operations that the host's thread can post.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_known(mlx5::opcode operation) noexcept {
    return operation == mlx5::opcode::write || operation == mlx5::opcode::write_immediate ||
           operation == mlx5::opcode::send || operation == mlx5::opcode::send_immediate ||
           operation == mlx5::opcode::read;
}

/// Before the first descriptor, number `first`: the ring holds none.
ACCEL_HOST_DEVICE inline void clear(send_descriptor* ring, std::uint32_t count, std::uint32_t first = 0) noexcept {
    for (std::uint32_t number = first; number - first < count; ++number) {
        const tagged_quad none{{0, 0, 0}, tag_of(number) - 1};
        for (tagged_quad& quad : ring[number & (count - 1)].quads) store_quad(&quad, none);
    }
}
/// Likewise.
ACCEL_HOST_DEVICE inline void clear(completion_entry* entries, std::uint32_t count, std::uint32_t first = 0) noexcept {
    for (std::uint32_t number = first; number - first < count; ++number)
        store_quad(&entries[number & (count - 1)], {{0, 0, 0}, tag_of(number) - 1});
}

/// Places between `reserved` and `released`, either of which may have been read too early: below 0 for a
/// `released` that is old.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::int32_t room_between(const send_queue_ref& queue, std::uint32_t reserved,
                                                                 std::uint32_t released) noexcept {
    return static_cast<std::int32_t>(released + queue.count - reserved);
}

/// Descriptors for which there is room. Looks across only if none was left when that was last done.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t free_descriptors(const send_queue_ref& queue) noexcept {
    std::uint32_t released = device::detail::load_acquire(&queue.state->released);
    const std::uint32_t reserved = device::detail::load_relaxed(&queue.state->reserved);
    if (room_between(queue, reserved, released) <= 0) {
        released = mlx5::load_flag(queue.released);
        device::detail::store_release(&queue.state->released, released);
    }
    const std::int32_t room = room_between(queue, reserved, released);
    return room > 0 ? static_cast<std::uint32_t>(room) : 0;
}

/// Step 1: takes places for `descriptors`; `first` is the number of the first. `again`: there is no room for
/// so many, and nothing was taken. Room for more than half of the ring may never come: the proxy hears of
/// what has completed when half of it is out.
[[nodiscard]] ACCEL_HOST_DEVICE inline status reserve(const send_queue_ref& queue, std::uint32_t descriptors,
                                                      std::uint32_t& first) noexcept {
    const auto wanted = static_cast<std::int32_t>(descriptors);
    std::uint32_t seen = device::detail::load_relaxed(&queue.state->reserved);
    do {
        // The counters that others have noted may be old, and so may `seen` be: the exchange fails then.
        if (room_between(queue, seen, device::detail::load_acquire(&queue.state->released)) >= wanted) continue;
        const std::uint32_t released = mlx5::load_flag(queue.released);
        if (room_between(queue, seen, released) < wanted) return status::again;
        device::detail::store_release(&queue.state->released, released);
    } while (!device::detail::compare_exchange(&queue.state->reserved, seen, seen + descriptors));
    first = seen;
    return status::ok;
}

/// Step 2: the bytes that the descriptors name are in memory before the descriptors are, so that they are
/// when the adapter comes for them. Once for all descriptors that are filled next.
ACCEL_HOST_DEVICE inline void order_payload_before_descriptor() noexcept {
    order_rest_before_quad();
}

/// Step 3: hands descriptor `number`, which has been reserved, to the proxy. It is posted when all before it
/// have been: in the order of their numbers, whoever filled them, and whenever.
ACCEL_HOST_DEVICE inline void fill(const send_queue_ref& queue, std::uint32_t number,
                                   const mlx5::work_request& request) noexcept {
    const mlx5::local_range from = request.ranges != 0 ? *request.first : mlx5::local_range{};
    const std::uint32_t what = (std::uint32_t{request.flags} << 8) | static_cast<std::uint32_t>(request.operation);
    const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
    const auto high = [](std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); };
    const std::uint32_t tag = tag_of(number);
    tagged_quad* const to = queue.ring[number & (queue.count - 1)].quads;
    store_quad(to, {{what, static_cast<std::uint32_t>(request.immediate), from.length}, tag});
    store_quad(to + 1, {{low(from.address), high(from.address), from.key}, tag});
    store_quad(to + 2, {{low(request.remote_address), high(request.remote_address), request.remote_key}, tag});
    store_quad(to + 3, {{queue.queue_pair, 0, 0}, tag});
}

/// Step 3 for an answer in `slot`: one store of 16 bytes.
ACCEL_HOST_DEVICE inline void fill_answer(send_descriptor* ring, std::uint32_t mask, std::uint32_t number,
                                          std::uint32_t slot, std::uint32_t bytes) noexcept {
    store_quad(ring[number & mask].quads, {{answer_mark, slot, bytes}, tag_of(number)});
}
/// All steps, for an answer.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post_answer(const send_queue_ref& queue, std::uint32_t slot,
                                                          std::uint32_t bytes) noexcept {
    std::uint32_t number = 0;
    if (const status taken = reserve(queue, 1, number); taken != status::ok) return taken;
    order_payload_before_descriptor();
    fill_answer(queue.ring, queue.count - 1, number, slot, bytes);
    return status::ok;
}

/// All steps, for one request of at most one range. `unsupported`: it has more, carries its bytes or is atomic.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const send_queue_ref& queue,
                                                   const mlx5::work_request& request) noexcept {
    if (request.carries_bytes || request.ranges > 1 || !is_known(request.operation)) return status::unsupported;
    std::uint32_t number = 0;
    if (const status taken = reserve(queue, 1, number); taken != status::ok) return taken;
    order_payload_before_descriptor();
    fill(queue, number, request);
    return status::ok;
}

/// A completion has named descriptor `counter` (its low 16 bits). The room is given back by the proxy; this
/// only spares the posters a look. False: no descriptor that is or has lately been under way has that number.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool release(const send_queue_ref& queue, std::uint16_t counter) noexcept {
    const std::uint32_t released = device::detail::load_relaxed(&queue.state->released);
    const auto ahead = static_cast<std::int16_t>(counter - static_cast<std::uint16_t>(released));
    if (ahead < 0) return true;
    const auto distance = static_cast<std::uint32_t>(ahead);
    if (distance >= device::detail::load_relaxed(&queue.state->reserved) - released) return false;
    device::detail::store_release(&queue.state->released, released + distance + 1);
    return true;
}

/// `take` would find one.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_next_there(const completion_queue_ref& queue) noexcept {
    const std::uint32_t taken = queue.state->taken;
    tagged_quad entry;
    return load_quad(&queue.entries[taken & (queue.count - 1)], tag_of(taken), entry);
}

/// Takes the next completion, if there is one. Its place is given back by `publish_taken`.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool take(const completion_queue_ref& queue, mlx5::completion& out) noexcept {
    completion_queue_state& state = *queue.state;
    tagged_quad entry;
    const tagged_quad* const at = &queue.entries[state.taken & (queue.count - 1)];
    if (!load_quad(at, tag_of(state.taken), entry)) return false;
    order_quad_before_rest();
    state.taken = state.taken + 1;
    const std::uint32_t detail = entry.content[1];
    out = mlx5::completion{};
    out.queue_pair = entry.content[0] & 0xff'ffffU;
    out.kind = static_cast<mlx5::entry_kind>(entry.content[0] >> 24);
    const bool failed = out.kind == mlx5::entry_kind::request_error || out.kind == mlx5::entry_kind::receive_error;
    if (!failed && out.kind != mlx5::entry_kind::request) {
        out.immediate = mlx5::be32{detail};
        out.length = entry.content[2];
        return true;
    }
    out.counter = static_cast<std::uint16_t>(detail);
    out.operation = static_cast<mlx5::opcode>(entry.content[2] & 0xffU);
    if (!failed) return true;
    out.failure = static_cast<mlx5::syndrome>((detail >> 16) & 0xffU);
    out.vendor_syndrome = static_cast<std::uint8_t>(detail >> 24);
    if (mlx5::load_whole(queue.first_failure) == 0) {
        const std::uint64_t operation = entry.content[2] & 0xffU;
        const std::uint64_t told = (operation << 48) | (std::uint64_t{out.queue_pair} << 24) |
                                   (std::uint64_t{out.vendor_syndrome} << 16) |
                                   (static_cast<std::uint64_t>(out.failure) << 8) | 1U;
        mlx5::store_whole(queue.first_failure, told);
    }
    return true;
}

/// Gives the places of all completions taken so far back to the proxy.
ACCEL_HOST_DEVICE inline void publish_taken(const completion_queue_ref& queue) noexcept {
    mlx5::store_flag(queue.consumed, queue.state->taken);
}

/// As for an adapter's queue: what has been told of `queue_pair` and not been taken becomes
/// `mlx5::no_queue_pair`'s. By the taker, once the proxy has removed the queue pair.
ACCEL_HOST_DEVICE inline void discard_completions(const completion_queue_ref& queue,
                                                  std::uint32_t queue_pair) noexcept {
    for (std::uint32_t i = queue.state->taken; i - queue.state->taken < queue.count; ++i) {
        tagged_quad* const at = &queue.entries[i & (queue.count - 1)];
        tagged_quad entry;
        if (!load_quad(at, tag_of(i), entry)) return;
        if ((entry.content[0] & 0xff'ffffU) != queue_pair) continue;
        entry.content[0] |= mlx5::no_queue_pair;
        store_quad(at, entry);
    }
}

// The other side, on the host.

/// A descriptor as it was when it was read: nothing that happens to the ring changes it.
struct request {
    std::uint8_t operation = 0;  ///< as an `mlx5::opcode`, if it is one
    std::uint8_t flags = 0;
    bool known_bits_only = false;  ///< what has no meaning is 0
    bool is_answer = false;        ///< only slot and length are there (`complete`)
    std::uint32_t slot = 0;
    std::uint32_t queue_pair = 0;
    mlx5::be32 immediate{};
    mlx5::local_range from;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
};

/// Reads descriptor `number` of a ring. False: it has not been filled, or not all of it.
[[nodiscard]] inline bool read(const send_descriptor* ring, std::uint32_t count, std::uint32_t number,
                               request& out) noexcept {
    const tagged_quad* const from = ring[number & (count - 1)].quads;
    tagged_quad quads[4];
    if (!load_quad(from, tag_of(number), quads[0])) return false;
    const std::uint32_t what = quads[0].content[0];
    out = request{};
    out.is_answer = what == answer_mark;
    out.operation = static_cast<std::uint8_t>(what);
    if (out.is_answer) {
        out.slot = quads[0].content[1];
        out.from.length = quads[0].content[2];
        return true;
    }
    for (int i = 3; i > 0; --i)
        if (!load_quad(from + i, tag_of(number), quads[i])) return false;
    const auto whole = [](const tagged_quad& quad) { return (std::uint64_t{quad.content[1]} << 32) | quad.content[0]; };
    out.flags = static_cast<std::uint8_t>(what >> 8);
    out.known_bits_only = (what >> 16) == 0 && quads[3].content[1] == 0 && quads[3].content[2] == 0;
    out.queue_pair = quads[3].content[0];
    out.immediate = mlx5::be32{quads[0].content[1]};
    out.from = {whole(quads[1]), quads[0].content[2], quads[1].content[2]};
    out.remote_address = whole(quads[2]);
    out.remote_key = quads[2].content[2];
    return true;
}

/// Makes the work request of an answer. False: no kernel that keeps to its session asks for it.
[[nodiscard]] inline bool complete(const answer_way& way, std::uint32_t name, request& answer) noexcept {
    if (answer.slot >= way.slots || answer.from.length > way.longest) return false;
    answer.operation = static_cast<std::uint8_t>(way.plain != 0 ? mlx5::opcode::write : mlx5::opcode::write_immediate);
    answer.known_bits_only = true;
    answer.queue_pair = name;
    answer.immediate = mlx5::to_be32(answer.slot);
    answer.from = {way.headers + way.stride * answer.slot, answer.from.length, way.key};
    answer.remote_address = way.peer_headers + way.peer_stride * answer.slot;
    answer.remote_key = way.peer_key;
    return true;
}

/// Places of a completion ring that are free when `told` completions have been written. 0 also where the
/// taker's word makes no sense.
[[nodiscard]] inline std::uint32_t room(std::uint32_t count, const std::uint32_t* consumed,
                                        std::uint32_t told) noexcept {
    const std::uint32_t out = told - mlx5::load_flag(consumed);
    return out <= count ? count - out : 0;
}

/// Writes completion number `told` where there is room for it.
inline void tell(completion_entry* entries, std::uint32_t count, std::uint32_t told,
                 const mlx5::completion& what) noexcept {
    const bool failed = what.kind == mlx5::entry_kind::request_error || what.kind == mlx5::entry_kind::receive_error;
    const bool of_send = failed || what.kind == mlx5::entry_kind::request;
    tagged_quad entry{};
    entry.tag = tag_of(told);
    entry.content[0] = (static_cast<std::uint32_t>(what.kind) << 24) | (what.queue_pair & 0xff'ffffU);
    entry.content[1] = of_send ? what.counter | (static_cast<std::uint32_t>(what.failure) << 16) |
                                     (std::uint32_t{what.vendor_syndrome} << 24)
                               : static_cast<std::uint32_t>(what.immediate);
    entry.content[2] = of_send ? static_cast<std::uint32_t>(what.operation) : what.length;
    store_quad(&entries[told & (count - 1)], entry);
}

}  // namespace accel::proxy
