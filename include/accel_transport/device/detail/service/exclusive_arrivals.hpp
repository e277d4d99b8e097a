// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/service/answers.hpp>
#include <accel_transport/device/detail/service/exclusive_intake.hpp>

#include <cstddef>
#include <cstdint>

/// Headers that an owner of sessions has found in its slots: each is read once, and checked.
namespace accel::device::detail {

/// A header, as it was read once, and what its payload begins with: read with it, so that it is in the cache of the
/// processor when the service comes to it.
struct arrival {
    loaded_quad first;
    std::uint64_t length;
    std::uint64_t trace_id;
    loaded_quad third;
    std::uint32_t last_word;
    std::uint32_t touched[2];
};
/// After an acquire of the header's last word. All of it is under way before any of it is needed.
ACCEL_HOST_DEVICE_INLINE void read_arrival(std::byte* header, arrival& out) noexcept {
    load_quad(reinterpret_cast<const loaded_quad*>(header), out.first);
    out.length = load_far(reinterpret_cast<const std::uint64_t*>(header) + 2);
    out.trace_id = load_far(reinterpret_cast<const std::uint64_t*>(header) + 3);
    load_quad(reinterpret_cast<const loaded_quad*>(header) + 2, out.third);
    out.last_word = load_far(arrival_word(header));
#if defined(__CUDA_ARCH__)
    constexpr std::uint32_t sector = 32;  // what a load brings into the cache
    const std::byte* const payload = header + wire::header_bytes;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(out.touched[0]) : "l"(payload) : "memory");
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(out.touched[1]) : "l"(payload + sector) : "memory");
#endif
}
ACCEL_HOST_DEVICE_INLINE wire::slot_header header_of(const arrival& came) noexcept {
    struct {
        loaded_quad first;
        std::uint64_t length;
        std::uint64_t trace_id;
        loaded_quad third;
        std::uint32_t not_of_requests[3];
        std::uint32_t last_word;
    } const whole{came.first, came.length, came.trace_id, came.third, {}, came.last_word};
    wire::slot_header out;
    static_assert(sizeof whole == sizeof out);
    __builtin_memcpy(static_cast<void*>(&out), &whole, sizeof out);
    return out;
}

/// A header with more in it than most have: extensions, of which one may say where the client wants the answer. False:
/// no correct client sends this.
ACCEL_HOST_DEVICE_SELDOM inline bool read_extensions(const std::byte* header, std::uint32_t code_and_bytes,
                                                     exchange_ref& out) noexcept {
    const std::uint32_t code = code_and_bytes & 0xffffU;
    const std::uint32_t bytes = code_and_bytes >> 16;
    if (code >= status_count || bytes > wire::extension_room || bytes % 8 != 0) return false;
    return wire::find_response_target(header - bytes, bytes, out.target) &&
           (out.target.length == 0 || out.response_room <= out.target.length);
}

/// The owner's copies that taking a request on needs. All of it is read while the header is under way.
struct turn_copies {
    std::byte* header;
    slot_watch* watch_at;
    exclusive_session* session_at;
    std::byte* response;
    std::uint64_t session_id;
    std::uint64_t requests;
    std::int64_t clock_offset;
    std::int64_t orders_due;
    std::uint32_t generation;  ///< of the slot's last request
    std::uint32_t session;
    std::uint32_t slot;
    std::uint32_t request_capacity;
    std::uint32_t response_capacity;
    std::uint32_t limit;
    std::uint32_t posted;
    std::uint32_t released;
    std::uint32_t held;
    std::uint32_t stopping;
    std::uint32_t at_hand;
    std::uint32_t slot_copy;
    std::uint32_t session_copy;
    std::uint32_t places;
};
/// `place` is at hand.
ACCEL_HOST_DEVICE_INLINE void read_copies(const owned_sessions& mine, std::uint32_t place, turn_copies& out) noexcept {
    out.at_hand = mine.at_hand;
    out.stopping = mine.stopping;
    out.orders_due = mine.orders_due;
    out.clock_offset = mine.clock.clock_offset;
    out.places = mine.places;
    const bool all = out.at_hand == all_at_hand;
    out.slot_copy = all ? place : 0;
    out.session_copy = all ? place >> mine.at.slot_bits : 0;
    const owned_slot& slot = mine.slots[out.slot_copy];
    out.header = slot.header;
    out.generation = slot.watch.generation;
    out.watch_at = slot.watch_at;
    out.session_at = slot.session_at;
    out.session = slot.session;
    out.slot = slot.slot;
    out.response = slot.prepared.response;
    const session_view& session = mine.sessions[out.session_copy];
    out.session_id = session.id;
    out.requests = session.requests;
    out.request_capacity = session.request_capacity;
    out.response_capacity = session.response_capacity;
    out.limit = session.limit;
    out.posted = session.posted;
    out.released = session.released;
    out.held = session.held;
    need_now(out);
}

/// True: a correct client sends this, whatever its extensions are. Its last word repeats the generation. No branch: a
/// client waits for it.
ACCEL_HOST_DEVICE_INLINE bool is_request(const arrival& came, const turn_copies& copies) noexcept {
    constexpr std::uint32_t known_flags = std::uint32_t{wire::header_flag::known} << 16;
    constexpr std::uint32_t expected = wire::protocol_version | static_cast<std::uint32_t>(wire::message_kind::request)
                                                                    << 8;
    const std::uint32_t generation = came.first.words[2];
    const std::uint32_t other = ((came.first.words[0] & ~known_flags) ^ expected) |
                                (came.first.words[1] ^ copies.slot) | (came.last_word ^ generation) |
                                static_cast<std::uint32_t>(came.length >> 32);
    const bool too_long = static_cast<std::uint32_t>(came.length) > copies.request_capacity;
    const bool wants_too_much = came.third.words[1] > copies.response_capacity;
    return !((other != 0) | too_long | wants_too_much | (generation == copies.generation));
}

}  // namespace accel::device::detail
