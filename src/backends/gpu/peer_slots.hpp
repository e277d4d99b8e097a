#pragma once

#include "core/protocol.hpp"
#include "verbs/endpoint.hpp"

#include <accel_transport/device/service_layout.hpp>

namespace accel::gpu {

/// Where a client wants its responses, as its description of itself says.
[[nodiscard]] inline device::peer_slots_layout peer_slots_of(const verbs::endpoint& peer) noexcept {
    device::peer_slots_layout out;
    out.headers = peer.slots_address + core::extension_room;
    out.headers_stride = peer.slots_stride;
    out.headers_key = peer.slots_key;
    if (peer.apart()) {
        out.payloads = peer.payloads_address;
        out.payloads_stride = peer.payloads_stride;
        out.payloads_key = peer.payloads_key;
    }
    return out;
}

}  // namespace accel::gpu
