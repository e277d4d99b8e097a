// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/extension_copy.hpp>
#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/slot_header.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Tensors of a payload, as an extension of the message's header (docs/protocol.md, section 3).
namespace accel::wire {

inline constexpr std::uint16_t tensors_type = 2;

/// One tensor; its `rank` sizes follow, 4 bytes each.
struct tensor_entry {
    data_type type;
    std::uint32_t rank = 0;
    std::uint32_t offset = 0;  ///< in the payload, which has at most `max_payload_bytes`
};
static_assert(sizeof(tensor_entry) == 12 && std::is_trivially_copyable_v<tensor_entry>);

[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::size_t sizes_bytes(std::uint32_t rank) noexcept {
    return std::size_t{rank} * sizeof(std::uint32_t);
}

/// The length of the value. `lies_within` accepts each tensor.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::size_t tensor_value_bytes(const tensor* list,
                                                                         std::uint32_t count) noexcept {
    std::size_t bytes = 0;
    for (std::uint32_t i = 0; i < count; ++i) bytes += sizeof(tensor_entry) + sizes_bytes(list[i].rank);
    return bytes;
}

/// The length of the whole extension.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::size_t tensor_extension_bytes(const tensor* list,
                                                                             std::uint32_t count) noexcept {
    return sizeof(extension_head) + (tensor_value_bytes(list, count) + 7) / 8 * 8;
}

/// Writes `tensor_extension_bytes`, for which there is room within `extension_room`.
ACCEL_HOST_DEVICE inline void write_tensor_extension(std::byte* to, const tensor* list, std::uint32_t count) noexcept {
    const std::size_t length = tensor_value_bytes(list, count);
    const extension_head head{tensors_type, static_cast<std::uint16_t>(length), 0};
    __builtin_memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (std::uint32_t i = 0; i < count; ++i) {
        const tensor_entry entry{list[i].type, list[i].rank, static_cast<std::uint32_t>(list[i].offset)};
        __builtin_memcpy(to, &entry, sizeof entry);
        __builtin_memcpy(to + sizeof entry, list[i].shape, sizes_bytes(entry.rank));
        to += sizeof entry + sizes_bytes(entry.rank);
    }
    for (std::size_t padding = length; padding % 8 != 0; ++padding) *to++ = std::byte{0};
}

/// Reads one tensor off the front of a value. False: no correct peer sends this.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool read_tensor(const std::byte*& value, std::size_t& bytes,
                                                        std::uint64_t payload_bytes, tensor& out) noexcept {
    tensor_entry entry;
    if (bytes < sizeof entry) return false;
    __builtin_memcpy(&entry, value, sizeof entry);
    if (entry.rank > max_tensor_rank || bytes - sizeof entry < sizes_bytes(entry.rank)) return false;
    out = {};
    out.type = entry.type;
    out.rank = entry.rank;
    out.offset = entry.offset;
    __builtin_memcpy(out.shape, value + sizeof entry, sizes_bytes(entry.rank));
    value += sizeof entry + sizes_bytes(entry.rank);
    bytes -= sizeof entry + sizes_bytes(entry.rank);
    return lies_within(out, payload_bytes);
}

/// Reads the value of the extension: as `accel::tensors` does with a table.
[[nodiscard]] ACCEL_HOST_DEVICE inline status read_tensors(const std::byte* value, std::size_t bytes,
                                                           std::uint64_t payload_bytes, tensor* out, std::uint32_t room,
                                                           std::uint32_t& count) noexcept {
    std::uint32_t found = 0;
    for (; bytes > 0; ++found) {
        tensor beyond;
        if (!read_tensor(value, bytes, payload_bytes, found < room ? out[found] : beyond))
            return status::protocol_error;
    }
    if (found == 0) return status::protocol_error;
    count = found;
    return found > room ? status::message_too_large : status::ok;
}

/// Looks for tensors among the `bytes` of a message's extensions, which nobody changes meanwhile. `not_found`: they say
/// nothing of tensors. Else as `accel::tensors`.
[[nodiscard]] ACCEL_HOST_DEVICE inline status find_tensors(const std::byte* extensions, std::size_t bytes,
                                                           std::uint64_t payload_bytes, tensor* out, std::uint32_t room,
                                                           std::uint32_t& count) noexcept {
    count = 0;
    const std::byte* value = nullptr;
    std::uint16_t length = 0;
    const status seen = find_extension(extensions, bytes, tensors_type, value, length);
    return seen != status::ok ? seen : read_tensors(value, length, payload_bytes, out, room, count);
}

/// The same in front of the header at `header`, in a slot. `not_found` also if it is not the header of that
/// generation: then the message has come without extensions, and left its header elsewhere.
[[nodiscard]] ACCEL_HOST_DEVICE inline status find_tensors_before(const std::byte* header, std::uint32_t generation,
                                                                  std::uint64_t payload_bytes, tensor* out,
                                                                  std::uint32_t room, std::uint32_t& count) noexcept {
    count = 0;
    extension_copy copy;
    const status seen = copy_extensions(header, generation, copy);
    return seen != status::ok ? seen : find_tensors(copy.bytes, copy.length, payload_bytes, out, room, count);
}

/// The tensors that a message describes, in front of its header or at the head of its payload.
[[nodiscard]] ACCEL_HOST_DEVICE inline status tensors_of_message(const std::byte* payload, std::uint64_t payload_bytes,
                                                                 std::uint32_t generation, tensor* out,
                                                                 std::uint32_t room, std::uint32_t& count) noexcept {
    const status told = find_tensors_before(payload - header_bytes, generation, payload_bytes, out, room, count);
    return told == status::not_found ? accel::tensors(payload, payload_bytes, out, room, count) : told;
}

}  // namespace accel::wire
