#pragma once

#include <accel_transport/device/detail/channel_layout.hpp>

#include <cstdint>

namespace accel::device {

/// A channel as kernels see it; passed to them by value. Owns nothing: it is good until the channel has been
/// closed.
struct channel_ref {
    channel_state* state = nullptr;
    call_entry* calls = nullptr;
    std::uint32_t slots = 0;
    slots_layout requests;
    slots_layout responses;
    peer_slots_layout peer;
    send_port sends;
    completion_port completions;
    const channel_orders* orders = nullptr;
    channel_report* report = nullptr;
    std::int64_t call_timeout_ns = 0;
};

}  // namespace accel::device
