// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/byte_order.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Work requests and completions of mlx5 adapters, as they lie in memory: "Mellanox Adapters Programmer's Reference
/// Manual", sections on work queues and completion queues, and the public header infiniband/mlx5dv.h.
namespace accel::mlx5 {

/// A WQEBB: work requests start at multiples of this.
inline constexpr std::uint32_t wqebb_bytes = 64;
/// A DS (data segment): work requests count their length in these.
inline constexpr std::uint32_t ds_bytes = 16;
/// Longest work request, in DS.
inline constexpr std::uint32_t max_ds = 63;

/// The operation of a work request.
enum class opcode : std::uint8_t {
    nop = 0x00,
    write = 0x08,
    write_immediate = 0x09,
    send = 0x0a,
    send_immediate = 0x0b,
    read = 0x10,
    compare_swap = 0x11,
    fetch_add = 0x12,
};

/// Bits of `control_segment::flags`.
inline constexpr std::uint8_t flag_solicited = 0x02;
inline constexpr std::uint8_t flag_signalled = 0x08;
inline constexpr std::uint8_t flag_fence = 0x80;

/// Starts every work request; its first 8 bytes are also what the doorbell takes.
struct control_segment {
    be32 opmod_idx_opcode;  ///< WQEBB number, 16 bits, and operation
    be32 qpn_ds;            ///< queue pair number and length
    std::uint8_t signature;
    std::uint8_t reserved[2];
    std::uint8_t flags;
    be32 immediate;
};
/// Where at the peer.
struct remote_segment {
    be64 address;
    be32 key;
    be32 reserved;
};
/// A range of local memory.
struct data_segment {
    be32 length;
    be32 key;
    be64 address;
};
/// Operands of an atomic operation.
struct atomic_segment {
    be64 swap_or_add;
    be64 compare;
};
/// Marks the length of bytes that lie in the work request itself, right after it.
inline constexpr std::uint32_t inline_marker = 0x8000'0000;
/// Ends the list of a receive that has fewer ranges than it could have.
inline constexpr std::uint32_t no_key = 0x100;

/// Starts each receive of a shared receive queue.
struct next_segment {
    std::uint8_t reserved[2];
    be16 next;
    std::uint8_t signature;
    std::uint8_t reserved_end[11];
};

/// Kinds of completions: the upper half of `owner_kind`.
enum class entry_kind : std::uint8_t {
    request = 0,
    write_immediate = 1,
    receive = 2,
    receive_immediate = 3,
    receive_invalidate = 4,
    request_error = 13,
    receive_error = 14,
    invalid = 15,
};

/// A completion. With completions of 128 bytes, the second half of one.
struct completion_entry {
    std::uint8_t reserved[32];
    be32 user_index;
    be32 immediate;
    std::uint8_t application[4];
    be32 length;
    be64 timestamp;
    be32 opcode_queue;  ///< operation and queue pair number
    be16 counter;       ///< of a send: its first WQEBB
    std::uint8_t signature;
    std::uint8_t owner_kind;  ///< kind, form (2 bits), solicited, owner
};
/// The fields that an error completion has instead.
struct error_entry {
    std::uint8_t reserved[32];
    be32 user_index;
    std::uint8_t reserved_middle[18];
    std::uint8_t vendor_syndrome;
    std::uint8_t syndrome;
    be32 opcode_queue;
    be16 counter;
    std::uint8_t signature;
    std::uint8_t owner_kind;
};

static_assert(sizeof(control_segment) == ds_bytes && sizeof(remote_segment) == ds_bytes &&
              sizeof(data_segment) == ds_bytes && sizeof(atomic_segment) == ds_bytes &&
              sizeof(next_segment) == ds_bytes);
static_assert(offsetof(control_segment, flags) == 11 && offsetof(next_segment, next) == 2);
static_assert(sizeof(completion_entry) == 64 && sizeof(error_entry) == 64);
static_assert(offsetof(completion_entry, immediate) == 36 && offsetof(completion_entry, opcode_queue) == 56 &&
              offsetof(completion_entry, counter) == 60 && offsetof(completion_entry, owner_kind) == 63);
static_assert(offsetof(error_entry, vendor_syndrome) == 54 && offsetof(error_entry, syndrome) == 55 &&
              offsetof(error_entry, opcode_queue) == 56);
static_assert(std::is_trivially_copyable_v<control_segment> && std::is_trivially_copyable_v<completion_entry>);

/// Why a work request failed, as the adapter tells.
enum class syndrome : std::uint8_t {
    none = 0x00,
    local_length = 0x01,
    local_queue_pair = 0x02,
    local_protection = 0x04,
    flushed = 0x05,
    window_bind = 0x06,
    bad_response = 0x10,
    local_access = 0x11,
    remote_invalid_request = 0x12,
    remote_access = 0x13,
    remote_operation = 0x14,
    retries_exceeded = 0x15,
    receiver_not_ready = 0x16,
    remote_aborted = 0x22,
};

}  // namespace accel::mlx5
