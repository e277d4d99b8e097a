// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/slot_header.hpp>

#include <cstdint>

/// Responses in parts, as calling kernels keep them: a call lends slots of its channel to the server, one for each part
/// that it is ready to hold. The scope that has the call has these too (docs/protocol.md, section 9).
namespace accel::device::detail {

/// The last call in parts of a slot.
struct parts_call {
    std::uint64_t next = 0;            ///< number of the part that is handed out next
    std::int64_t part_timeout_ns = 0;  ///< 0: none
    std::int64_t part_deadline = 0;    ///< by `clock_ns`, while `lent` is not 0
    std::uint32_t rooms = 0;     ///< the slot of the first of its rooms, plus 1: lent ones, and parts not handed out
    std::uint32_t lent = 0;      ///< slots that the server has
    std::uint32_t answered = 0;  ///< 1: the header of the response that ends it is in `last`
    std::uint32_t reserved = 0;
    wire::slot_header last;
};

/// A slot in its use for a part.
struct parts_room {
    std::uint64_t number = 0;  ///< of its part
    std::uint64_t bytes = 0;   ///< of its part
    std::uint32_t call_slot = 0;
    std::uint32_t call_generation = 0;
    std::uint32_t generation = 0;  ///< its own
    std::uint32_t next = 0;        ///< in `parts_call::rooms`
    std::uint32_t has_part = 0;    ///< 1: a part has come, whose turn it is not
    std::uint32_t reserved = 0;
};

/// A slot as kernels keep it, in its two uses.
struct alignas(16) channel_part_slot {
    parts_call call;
    parts_room room;
};

}  // namespace accel::device::detail
