// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/exclusive_intake.hpp>
#include <accel_transport/device/detail/service_answers.hpp>

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
/// Behind an acquire of the header's last word. All of it is under way before any of it is needed.
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

/// True: a correct client sends this, whatever its extensions are. Its last word repeats the generation. No branch: a
/// client waits for it.
ACCEL_HOST_DEVICE_INLINE bool is_request(const arrival& came, const session_view& session, std::uint32_t slot,
                                         std::uint32_t last_generation) noexcept {
    constexpr std::uint32_t known_flags = std::uint32_t{wire::header_flag::known} << 16;
    constexpr std::uint32_t expected = wire::protocol_version | static_cast<std::uint32_t>(wire::message_kind::request)
                                                                    << 8;
    const std::uint32_t generation = came.first.words[2];
    const std::uint32_t other = ((came.first.words[0] & ~known_flags) ^ expected) | (came.first.words[1] ^ slot) |
                                (came.last_word ^ generation) | static_cast<std::uint32_t>(came.length >> 32);
    const bool too_long = static_cast<std::uint32_t>(came.length) > session.request_capacity;
    const bool wants_too_much = came.third.words[1] > session.response_capacity;
    return !((other != 0) | too_long | wants_too_much | (generation == last_generation));
}

}  // namespace accel::device::detail
