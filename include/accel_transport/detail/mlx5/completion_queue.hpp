// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/detail/mlx5/layout.hpp>

#include <cstddef>
#include <cstdint>

/// Taking completions from an mlx5 completion queue, by a CPU or a GPU. No step waits.
namespace accel::mlx5 {

/// Counters of a completion queue, and the first failure it told of. Reachable by whoever polls.
struct completion_queue_state {
    std::uint32_t taken = 0;         ///< completions, free-running
    std::uint32_t arm_sequence = 0;  ///< events received
    /// The first error completion: queue pair (24 bits), 8 bits of each operation, vendor's syndrome,
    /// syndrome, and 1. 0: there was none. Stays, however many follow it; may be read while the poller runs.
    std::uint64_t first_failure = 0;
};

/// A completion queue as its poller sees it: one thread at a time. Owns nothing.
struct completion_queue_ref {
    std::byte* entries = nullptr;
    std::uint32_t count = 0;            ///< a power of two
    std::uint32_t entry_bytes = 0;      ///< 64 or 128
    be32* doorbell_record = nullptr;    ///< two words: what was taken, what was armed
    std::uint64_t* doorbell = nullptr;  ///< where arming is told; may be null where nobody arms
    std::uint32_t number = 0;
    completion_queue_state* state = nullptr;
};

/// One completion, read once.
struct completion {
    std::uint32_t queue_pair = 0;
    be32 immediate{};  ///< of `write_immediate` and `receive_immediate`, as it travelled
    std::uint32_t length = 0;
    std::uint16_t counter = 0;  ///< of a send: its first WQEBB. Of a shared receive: its index
    entry_kind kind = entry_kind::invalid;
    opcode operation = opcode::nop;  ///< of a send
    syndrome failure = syndrome::none;
    std::uint8_t vendor_syndrome = 0;
};

/// Number of the queue pair of a completion that has been dropped: none has it.
inline constexpr std::uint32_t no_queue_pair = 0xff'ffff;

ACCEL_HOST_DEVICE inline completion_entry* entry_at(const completion_queue_ref& queue, std::uint32_t index) noexcept {
    std::byte* const begin = queue.entries + std::size_t{index & (queue.count - 1)} * queue.entry_bytes;
    return reinterpret_cast<completion_entry*>(begin + (queue.entry_bytes - sizeof(completion_entry)));
}

/// The adapter turns the owner bit over each time round.
ACCEL_HOST_DEVICE inline bool is_written(const completion_queue_ref& queue, std::uint32_t index,
                                         std::uint8_t owner_kind) noexcept {
    const bool round = (index & queue.count) != 0;
    return ((owner_kind & 1U) != 0) == round && (owner_kind >> 4) != static_cast<std::uint8_t>(entry_kind::invalid);
}

/// `take` would find one.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_next_there(const completion_queue_ref& queue) noexcept {
    const std::uint32_t taken = queue.state->taken;
    return is_written(queue, taken, load_flag(&entry_at(queue, taken)->owner_kind));
}

/// Takes the next completion, if there is one. Its place is given back by `publish_taken`.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool take(const completion_queue_ref& queue, completion& out) noexcept {
    completion_queue_state& state = *queue.state;
    const completion_entry* const entry = entry_at(queue, state.taken);
    const std::uint8_t owner_kind = load_flag(&entry->owner_kind);
    if (!is_written(queue, state.taken, owner_kind)) return false;
    state.taken = state.taken + 1;
    const std::uint32_t opcode_queue = from_be(entry->opcode_queue);
    out.queue_pair = opcode_queue & 0xff'ffffU;
    out.operation = static_cast<opcode>(opcode_queue >> 24);
    out.counter = from_be(entry->counter);
    out.kind = static_cast<entry_kind>(owner_kind >> 4);
    out.immediate = entry->immediate;
    out.length = from_be(entry->length);
    out.failure = syndrome::none;
    out.vendor_syndrome = 0;
    if (out.kind == entry_kind::request_error || out.kind == entry_kind::receive_error) {
        const auto* const error = reinterpret_cast<const error_entry*>(entry);
        out.immediate = be32{};
        out.length = 0;
        out.failure = static_cast<syndrome>(error->syndrome);
        out.vendor_syndrome = error->vendor_syndrome;
        if (state.first_failure == 0) {
            const std::uint64_t told = (std::uint64_t{opcode_queue} << 24) |
                                       (std::uint64_t{error->vendor_syndrome} << 16) |
                                       (std::uint64_t{error->syndrome} << 8) | 1U;
            store_whole(&state.first_failure, told);
        }
    }
    return true;
}

/// Gives the places of all completions taken so far back to the adapter.
ACCEL_HOST_DEVICE inline void publish_taken(const completion_queue_ref& queue) noexcept {
    order_completion_before_consumer_record();
    store_whole(queue.doorbell_record, to_be32(queue.state->taken & 0xff'ffffU));
}

/// Asks for an event when the next completion comes. Look once more before sleeping: for those that are there
/// already there is none.
ACCEL_HOST_DEVICE inline void arm(const completion_queue_ref& queue) noexcept {
    const std::uint32_t wish = ((queue.state->arm_sequence & 3U) << 28) | (queue.state->taken & 0xff'ffffU);
    store_whole(queue.doorbell_record + 1, to_be32(wish));
    order_doorbell_record_before_doorbell();
    const be64 ring = to_be64((std::uint64_t{wish} << 32) | queue.number);
    store_whole(queue.doorbell, static_cast<std::uint64_t>(ring));
    flush_doorbell();
}

/// After each event, before the next `arm`.
ACCEL_HOST_DEVICE inline void count_event(const completion_queue_ref& queue) noexcept {
    queue.state->arm_sequence = queue.state->arm_sequence + 1;
}

/// The queue pair is gone, and its number may come again: its completions that have not been taken become
/// those of `no_queue_pair`. They still have to be taken, as they may hand back shared receives.
ACCEL_HOST_DEVICE inline void discard_completions(const completion_queue_ref& queue,
                                                  std::uint32_t queue_pair) noexcept {
    for (std::uint32_t i = queue.state->taken; i - queue.state->taken < queue.count; ++i) {
        completion_entry* const entry = entry_at(queue, i);
        if (!is_written(queue, i, load_flag(&entry->owner_kind))) return;
        const std::uint32_t opcode_queue = from_be(entry->opcode_queue);
        if ((opcode_queue & 0xff'ffffU) != queue_pair) continue;
        entry->opcode_queue = to_be32(opcode_queue | no_queue_pair);
    }
}

}  // namespace accel::mlx5
