// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/layout_allocator.hpp"
#include "core/protocol.hpp"
#include "core/slot_memory.hpp"
#include "verbs/endpoint.hpp"

#include <accel_transport/device/detail/slots_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// The layout of kernels' memory, and its description for the peer.
namespace accel::gpu {

using core::layout_allocator;

/// Bytes from slot to slot: header and extensions of each lie in one aligned block.
[[nodiscard]] inline std::size_t stride_for(std::size_t capacity) noexcept {
    constexpr std::size_t line = 256;
    const std::size_t bytes = core::extension_room + core::header_bytes + std::max<std::size_t>(capacity, line);
    return (bytes + line - 1) / line * line;
}

/// Tells the peer where it may write. On a GPU, and where kernels look at slots instead of completions, payloads
/// are declared `apart`, although they lie behind their headers. The completion of a message lies in host memory
/// and may overtake the message; a header that is written after its payload cannot overtake it.
inline void describe_slots(const core::slot_memory& slots, std::uint32_t key, bool apart,
                           verbs::endpoint& out) noexcept {
    out.slots_address = reinterpret_cast<std::uintptr_t>(slots.base());
    out.slots_stride = slots.stride();
    out.slots_key = key;
    out.slots = slots.count();
    if (!apart) return;
    out.flags |= verbs::payloads_apart;
    out.payloads_address = reinterpret_cast<std::uintptr_t>(slots.payload(0));
    out.payloads_stride = slots.stride();
    out.payloads_key = key;
}

/// The peer's description of itself.
[[nodiscard]] inline device::detail::peer_slots_layout slots_of(const verbs::endpoint& peer) noexcept {
    device::detail::peer_slots_layout out;
    out.headers = peer.slots_address + core::extension_room;
    out.headers_stride = peer.slots_stride;
    out.headers_key = peer.slots_key;
    if (!peer.apart()) return out;
    out.payloads = peer.payloads_address;
    out.payloads_stride = peer.payloads_stride;
    out.payloads_key = peer.payloads_key;
    return out;
}

}  // namespace accel::gpu
