// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/wire/slot_header.hpp>
#include <accel_transport/device/detail/atomics.hpp>

#include <cstddef>
#include <cstdint>

/// Responses in parts, as kernels keep them: a client lends a slot for each part that it is ready to hold. Such a slot
/// is room for one part; the rooms of a call are a stack of slots (docs/protocol.md, section 9).
namespace accel::device::detail {

/// Where the last call in parts of a slot stands.
enum class parts_phase : std::uint32_t {
    ended,  ///< or there was none
    early,  ///< rooms have come before their request
    open,
};

/// The rooms of the last call in parts of a slot.
struct part_rooms {
    std::uint32_t generation = 0;  ///< of the call
    parts_phase phase = parts_phase::ended;
    std::uint32_t first = 0;  ///< the slot of the room lent last, plus 1; 0: there is none
};

/// A slot as kernels keep it for responses in parts, in its two uses. A session has one for each slot.
struct alignas(16) part_slot {
    // For a call.
    std::uint64_t rooms = 0;  ///< `part_rooms` in one word, so that one step changes all of it
    std::uint64_t sent = 0;   ///< parts
    std::uint32_t named = 0;  ///< the room of the next part, as `part_rooms::first`; of whoever has the exchange
    // For a room.
    std::uint32_t next = 0;   ///< the one lent before it, likewise
    std::uint32_t bytes = 0;  ///< of the longest part that it takes
    std::uint32_t reserved = 0;
};
static_assert(sizeof(part_slot) == 32);

[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint64_t word_of(const part_rooms& rooms) noexcept {
    return std::uint64_t{rooms.generation} << 32 | static_cast<std::uint32_t>(rooms.phase) << 30 | rooms.first;
}
[[nodiscard]] ACCEL_HOST_DEVICE constexpr part_rooms rooms_of(std::uint64_t word) noexcept {
    constexpr std::uint32_t first_mask = (std::uint32_t{1} << 30) - 1;
    const auto low = static_cast<std::uint32_t>(word);
    return {static_cast<std::uint32_t>(word >> 32), static_cast<parts_phase>(low >> 30), low & first_mask};
}

/// Room for a part, as a client's header says it.
struct lent_room {
    std::uint32_t call_slot = 0;
    std::uint32_t call_generation = 0;
    std::uint32_t bytes = 0;
};

[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_room(const wire::slot_header& header) noexcept {
    return (header.flags & wire::header_flag::of_parts) == wire::header_flag::more;
}

/// A part of a request, which services of kernels do not take.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_request_part(const wire::slot_header& header) noexcept {
    return (header.flags & wire::header_flag::part) != 0;
}

/// Without its flags, it is a request that a correct client may send.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_sane_part(const wire::slot_header& header) noexcept {
    constexpr std::uint16_t others = wire::header_flag::more | wire::header_flag::parts;
    return (header.flags & others) == 0 && header.extension_bytes == 0;
}

/// Reads the header of a room in `slot`. False: no correct client sends it.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool read_room(wire::slot_header header, std::uint32_t slot, std::uint32_t slots,
                                                      std::uint64_t response_bytes, lent_room& out) noexcept {
    const bool bare = header.flags == wire::header_flag::more && header.length == 0 && header.extension_bytes == 0;
    header.flags = 0;
    out.call_slot = static_cast<std::uint32_t>(header.parts_call);
    out.call_generation = static_cast<std::uint32_t>(header.parts_call >> 32);
    out.bytes = header.response_room;
    return bare && wire::is_well_formed(header, wire::message_kind::request) && header.slot == slot &&
           out.bytes <= response_bytes && out.call_slot < slots && out.call_slot != slot && out.call_generation != 0;
}

/// The use of a room.
enum class room_use : std::uint32_t {
    kept,
    returned,  ///< its call has ended: the two have crossed
    wrong,     ///< no correct client lends it
};

/// `last`: generation of the last request in the call's slot; 0: none. Rooms may be looked at later than what was sent
/// after them, so one of an older call is no error.
[[nodiscard]] ACCEL_HOST_DEVICE inline room_use use_of(const part_rooms& seen, std::uint32_t generation,
                                                       std::uint32_t last) noexcept {
    if (seen.generation == generation) return seen.phase == parts_phase::ended ? room_use::returned : room_use::kept;
    const bool late = last != 0 && static_cast<std::int32_t>(generation - last) <= 0;
    if (late) return room_use::returned;
    return seen.phase == parts_phase::ended ? room_use::kept : room_use::wrong;
}

/// The rooms with one more, which is kept.
[[nodiscard]] ACCEL_HOST_DEVICE inline part_rooms with_room(const part_rooms& seen, std::uint32_t generation,
                                                            std::uint32_t slot) noexcept {
    return {generation, seen.phase == parts_phase::ended ? parts_phase::early : seen.phase, slot + 1};
}

/// A request in parts has come. False: the client has lent room for another call, which never came.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool begin_call(const part_rooms& seen, std::uint32_t generation,
                                                       part_rooms& out) noexcept {
    const bool fits =
        seen.phase == parts_phase::ended || (seen.phase == parts_phase::early && seen.generation == generation);
    out = {generation, parts_phase::open, seen.first};
    return fits;
}

/// A call that nobody has: its rooms go with the session. By the owner of its slot.
ACCEL_HOST_DEVICE inline void leave_rooms(part_slot& call) noexcept {
    part_rooms left = rooms_of(call.rooms);
    left.phase = parts_phase::early;
    call.rooms = word_of(left);
}

}  // namespace accel::device::detail
