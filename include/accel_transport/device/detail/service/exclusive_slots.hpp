// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/loaded_quad.hpp>
#include <accel_transport/device/service_ref.hpp>

#include <cstddef>
#include <cstdint>

/// The slots of an owner: where they lie, and the copies that it keeps of what a turn needs. What a turn changes of a
/// copy it writes to the session or slot as well; who changes a session calls `refresh`.
namespace accel::device::detail {

inline constexpr std::uint32_t no_slot = 0xffff'ffffU;

ACCEL_HOST_DEVICE inline std::uint32_t first_number(const owned_sessions& mine, std::uint32_t session) noexcept {
    return session << mine.at.slot_bits;
}
ACCEL_HOST_DEVICE inline std::byte* request_header(const exclusive_ref& at, std::uint32_t number) noexcept {
    const std::uint32_t session = number >> at.slot_bits;
    const std::uint32_t slot = number & ((std::uint32_t{1} << at.slot_bits) - 1);
    return at.requests + at.session_stride * session + at.slot_stride * slot;
}
/// The word of a request's header that its client writes last.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t* arrival_word(std::byte* header) noexcept {
    return reinterpret_cast<std::uint32_t*>(header + wire::arrival_word_offset);
}

/// The number of the slot in `place`. The owner's places are those of one session after the other, without gaps.
ACCEL_HOST_DEVICE inline std::uint32_t number_of(const owned_sessions& mine, std::uint32_t place) noexcept {
    const std::uint32_t slot = place & ((std::uint32_t{1} << mine.at.slot_bits) - 1);
    const std::uint32_t session = mine.first + (place >> mine.at.slot_bits) * mine.step;
    return (session << mine.at.slot_bits) | slot;
}
/// Not every number has a slot: its watch says so forever, and the header is another's.
ACCEL_HOST_DEVICE inline std::byte* header_at(const owned_sessions& mine, std::uint32_t number) noexcept {
    const std::uint32_t slot = number & ((std::uint32_t{1} << mine.at.slot_bits) - 1);
    return request_header(mine.at, slot < mine.at.slots ? number : number - slot);
}

// Copies.

ACCEL_HOST_DEVICE inline void copy_slot(const owned_sessions& mine, std::uint32_t number, owned_slot& out) noexcept {
    out.header = header_at(mine, number);
    const auto* const watch = reinterpret_cast<const std::uint64_t*>(mine.at.watches + number);
    const std::uint64_t watched = mlx5::load_whole(watch);
    __builtin_memcpy(static_cast<void*>(&out.watch), &watched, sizeof watched);
    load_at_once(mine.at.prepared + number, out.prepared);
    out.watch_at = mine.at.watches + number;
    out.session_at = mine.at.sessions + (number >> mine.at.slot_bits);
    out.session = number >> mine.at.slot_bits;
    out.slot = number & ((std::uint32_t{1} << mine.at.slot_bits) - 1);
}
ACCEL_HOST_DEVICE inline void copy_session(const owned_sessions& mine, std::uint32_t index,
                                           session_view& out) noexcept {
    load_at_once(static_cast<const session_view*>(mine.at.sessions + index), out);
    out.plain = out.phase == session_phase::open && out.payloads_apart == 0 ? 1 : 0;
}
/// Copies a session and its slots to the places from `first` on.
ACCEL_HOST_DEVICE inline void copy_places(owned_sessions& mine, std::uint32_t first, std::uint32_t index) noexcept {
    copy_session(mine, index, mine.sessions[first >> mine.at.slot_bits]);
    const std::uint32_t slots = std::uint32_t{1} << mine.at.slot_bits;
    for (std::uint32_t i = 0; i < slots; ++i) copy_slot(mine, first_number(mine, index) + i, mine.slots[first + i]);
}
ACCEL_HOST_DEVICE inline void copy_all(owned_sessions& mine) noexcept {
    mine.places = mine.count << mine.at.slot_bits;
    mine.at_hand = mine.places <= max_at_hand ? all_at_hand : none_at_hand;
    for (std::uint32_t i = 0; mine.at_hand == all_at_hand && i < mine.count; ++i)
        copy_places(mine, i << mine.at.slot_bits, mine.first + i * mine.step);
}

/// A session of the owner's, or one of its slots, has changed other than by a turn.
ACCEL_HOST_DEVICE_SELDOM inline void refresh(owned_sessions& mine, std::uint32_t index) noexcept {
    if (mine.at_hand == all_at_hand)
        copy_places(mine, ((index - mine.first) / mine.step) << mine.at.slot_bits, index);
    else
        mine.at_hand = none_at_hand;
}

/// Sees to it that the slot in `place` is at hand.
ACCEL_HOST_DEVICE_SELDOM inline void fetch(owned_sessions& mine, std::uint32_t place) noexcept {
    if (mine.at_hand == place || mine.at_hand == all_at_hand) return;
    const std::uint32_t number = number_of(mine, place);
    copy_slot(mine, number, mine.slots[0]);
    copy_session(mine, number >> mine.at.slot_bits, mine.sessions[0]);
    mine.at_hand = place;
}

}  // namespace accel::device::detail
