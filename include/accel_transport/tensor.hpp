// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

/// Types, shapes and places of the tensors in a payload (docs/tensors.md). A message describes its own tensors:
/// `submit_options::tensors` and `exchange::describe` write the description, `exchange::tensors` and
/// `completion::tensors` read it. If the description does not fit into the header, it is a table at the start of the
/// payload. The functions below write and read that table. They work on the bytes alone; kernels use the overloads with
/// pointers. The caller must be able to reach the bytes: for a payload on a GPU, only kernels can.
namespace accel {

/// The kind of an element, with DLPack's values. More may be added; sizes follow from `bits` and `lanes`.
enum class type_code : std::uint8_t {
    signed_integer = 0,
    unsigned_integer = 1,
    floating = 2,
    opaque_handle = 3,  ///< never in a payload
    bfloat = 4,
    complex = 5,
    boolean = 6,
    float8_e3m4 = 7,
    float8_e4m3 = 8,
    float8_e4m3b11fnuz = 9,
    float8_e4m3fn = 10,
    float8_e4m3fnuz = 11,
    float8_e5m2 = 12,
    float8_e5m2fnuz = 13,
    float8_e8m0fnu = 14,
    float6_e2m3fn = 15,
    float6_e3m2fn = 16,
    float4_e2m1fn = 17,
};

/// The type of an element. The same layout as DLPack's `DLDataType`.
struct data_type {
    type_code code = type_code::floating;
    std::uint8_t bits = 32;   ///< of one lane
    std::uint16_t lanes = 1;  ///< more than 1: a vector
    ACCEL_HOST_DEVICE friend constexpr bool operator==(const data_type& a, const data_type& b) noexcept {
        return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
    }
};

inline constexpr std::uint32_t max_tensor_rank = 8;
inline constexpr std::uint32_t max_tensors = 64;  ///< per payload

/// One tensor: row-major, without gaps; elements of less than 8 bits are packed. The layout is that of the table.
struct tensor {
    data_type type;
    std::uint32_t rank = 0;                     ///< used dimensions of `shape`; 0: one element
    std::uint64_t offset = 0;                   ///< of the first byte, in the payload
    std::uint32_t shape[max_tensor_rank] = {};  ///< unused dimensions are 0
};
static_assert(sizeof(tensor) == 48 && std::is_trivially_copyable_v<tensor>);

namespace detail {

/// The start of the table.
struct tensor_table_head {
    static constexpr std::uint32_t own_magic = 0x534e5441;  ///< "ATNS"
    std::uint32_t magic = own_magic;
    std::uint16_t format = 1;
    std::uint16_t count = 0;
    std::uint64_t reserved = 0;
};
static_assert(sizeof(tensor_table_head) == 16 && std::is_trivially_copyable_v<tensor_table_head>);

/// More bits than any payload has. Products stay below this limit, so nothing overflows.
inline constexpr std::uint64_t bit_limit = std::uint64_t{1} << 60;

/// The bits of all elements; `bit_limit` at most.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint64_t bits_of(const tensor& one) noexcept {
    std::uint64_t bits = std::uint64_t{one.type.bits} * one.type.lanes;
    bool empty = false;
    for (std::uint32_t i = 0; i < one.rank && i < max_tensor_rank; ++i) {
        empty = empty || one.shape[i] == 0;
        const bool fits = one.shape[i] == 0 || bits < bit_limit / one.shape[i];
        bits = fits ? bits * one.shape[i] : bit_limit;
    }
    return empty ? 0 : bits;
}

/// The required alignment of the first byte: at most 8, the alignment of payloads.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint64_t alignment_of(const data_type& type) noexcept {
    const std::uint64_t bytes = (std::uint64_t{type.bits} + 7) / 8;
    const std::uint64_t aligned = bytes > 8 ? 8 : bytes;
    return (bytes & (bytes - 1)) == 0 ? aligned : 1;
}

/// Whether a payload can contain a tensor of this type and shape.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr bool is_sane(const tensor& one) noexcept {
    if (one.type.bits == 0 || one.type.lanes == 0 || one.type.code == type_code::opaque_handle) return false;
    if (one.rank > max_tensor_rank) return false;
    for (std::uint32_t i = one.rank; i < max_tensor_rank; ++i)
        if (one.shape[i] != 0) return false;
    return bits_of(one) < bit_limit;
}

[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint64_t table_bytes(std::uint64_t count) noexcept {
    return sizeof(tensor_table_head) + count * sizeof(tensor);
}

}  // namespace detail

/// The bytes of all elements. Only for tensors that `tensors` has read or `describe` would accept.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint64_t size_bytes(const tensor& one) noexcept {
    return (detail::bits_of(one) + 7) / 8;
}

/// Whether the tensor is entirely within a payload of this size, and aligned.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr bool lies_within(const tensor& one, std::uint64_t payload_bytes) noexcept {
    if (!detail::is_sane(one) || one.offset % detail::alignment_of(one.type) != 0) return false;
    return one.offset <= payload_bytes && size_bytes(one) <= payload_bytes - one.offset;
}

/// The same, and after a table of `count` tensors.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr bool lies_within(const tensor& one, std::uint64_t payload_bytes,
                                                           std::uint32_t count) noexcept {
    return one.offset >= detail::table_bytes(count) && lies_within(one, payload_bytes);
}

/// Sets the offsets of `count` tensors: after the table, consecutively, each aligned to 64 bytes. Returns the length of
/// the payload; 0: one of them is not a valid tensor, or `count` is 0 or above `max_tensors`.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint64_t place_tensors(tensor* list, std::uint32_t count) noexcept {
    if (count == 0 || count > max_tensors) return 0;
    std::uint64_t end = detail::table_bytes(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!detail::is_sane(list[i])) return 0;
        list[i].offset = (end + 63) / 64 * 64;
        end = list[i].offset + size_bytes(list[i]);
    }
    return end;
}

/// Writes the table of `count` tensors at the start of a payload, and nothing else.
/// `invalid_argument`: a tensor is invalid, not aligned, or not within the payload after the table; or `count` is 0 or
/// above `max_tensors`. Nothing was written.
[[nodiscard]] ACCEL_HOST_DEVICE inline status describe(std::byte* payload, std::uint64_t payload_bytes,
                                                       const tensor* list, std::uint32_t count) noexcept {
    if (count == 0 || count > max_tensors) return status::invalid_argument;
    for (std::uint32_t i = 0; i < count; ++i)
        if (!lies_within(list[i], payload_bytes, count)) return status::invalid_argument;
    detail::tensor_table_head head;
    head.count = static_cast<std::uint16_t>(count);
    __builtin_memcpy(payload, &head, sizeof head);
    __builtin_memcpy(payload + sizeof head, list, count * sizeof(tensor));
    return status::ok;
}

/// Reads the table at the start of a payload into `out` and sets `count`. All tensors in `out` are within the payload.
/// Reads each byte once, because a peer may change the bytes meanwhile.
/// `protocol_error`: there is no table, or not one that `describe` writes.
/// `message_too_large`: the table has more tensors than `room`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status tensors(const std::byte* payload, std::uint64_t payload_bytes,
                                                      tensor* out, std::uint32_t room, std::uint32_t& count) noexcept {
    count = 0;
    detail::tensor_table_head head;
    if (payload_bytes < sizeof head) return status::protocol_error;
    __builtin_memcpy(&head, payload, sizeof head);
    const bool ours = head.magic == detail::tensor_table_head::own_magic && head.format == 1 && head.reserved == 0;
    if (!ours || head.count == 0 || head.count > max_tensors) return status::protocol_error;
    if (payload_bytes < detail::table_bytes(head.count)) return status::protocol_error;
    if (head.count > room) {
        count = head.count;
        return status::message_too_large;
    }
    for (std::uint32_t i = 0; i < head.count; ++i) {
        __builtin_memcpy(out + i, payload + detail::table_bytes(i), sizeof(tensor));
        if (!lies_within(out[i], payload_bytes, head.count)) return status::protocol_error;
    }
    count = head.count;
    return status::ok;
}

// The same for the host.

[[nodiscard]] inline std::uint64_t place_tensors(std::span<tensor> list) noexcept {
    return list.size() > max_tensors ? 0 : place_tensors(list.data(), static_cast<std::uint32_t>(list.size()));
}

[[nodiscard]] inline status describe(std::span<std::byte> payload, std::span<const tensor> list) noexcept {
    if (list.size() > max_tensors) return status::invalid_argument;
    return describe(payload.data(), payload.size(), list.data(), static_cast<std::uint32_t>(list.size()));
}

/// Returns the tensors, which are at the start of `room`. Room for `max_tensors` is always enough.
[[nodiscard]] inline result<std::span<tensor>, status> tensors(std::span<const std::byte> payload,
                                                               std::span<tensor> room) noexcept {
    const std::size_t most = room.size() < max_tensors ? room.size() : max_tensors;
    std::uint32_t count = 0;
    const status read = tensors(payload.data(), payload.size(), room.data(), static_cast<std::uint32_t>(most), count);
    if (read != status::ok) return read;
    return room.first(count);
}

/// The elements of a tensor that `tensors` has read from this payload, or that `describe` has written.
[[nodiscard]] inline std::span<const std::byte> bytes_of(const tensor& one,
                                                         std::span<const std::byte> payload) noexcept {
    return payload.subspan(one.offset, size_bytes(one));
}
[[nodiscard]] inline std::span<std::byte> bytes_of(const tensor& one, std::span<std::byte> payload) noexcept {
    return payload.subspan(one.offset, size_bytes(one));
}

}  // namespace accel
