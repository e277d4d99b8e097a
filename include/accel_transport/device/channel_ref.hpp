// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/channel/exclusive_layout.hpp>
#include <accel_transport/device/detail/channel/layout.hpp>
#include <accel_transport/device/detail/channel/part_slots.hpp>
#include <accel_transport/device/detail/layout_version.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/trace.hpp>

#include <cstddef>
#include <cstdint>

/// The arguments of kernels that call: the channel, and each call.
namespace accel::device {

/// A channel as kernels see it, passed by value. Owns nothing; valid until the channel is closed.
struct channel_ref {
    detail::layout_stamp layout;
    detail::channel_state* state = nullptr;
    detail::call_entry* calls = nullptr;
    std::uint32_t slots = 0;
    detail::slots_layout requests;
    detail::slots_layout responses;
    detail::peer_slots_layout peer;
    detail::send_port sends;
    detail::completion_port completions;
    const detail::channel_orders* orders = nullptr;
    detail::channel_report* report = nullptr;
    std::int64_t call_timeout_ns = 0;
    std::uint32_t plain_requests = 0;            ///< 1: the server watches the last word of the headers
    std::uint32_t* cancels = nullptr;            ///< per slot: generation of the last cancelled call
    detail::channel_part_slot* parts = nullptr;  ///< one per slot
    detail::exclusive_channel_ref exclusive;     ///< with `service_sharing::exclusive`; `state` is then null
};

/// A channel that one thread, warp or block owns (`own`). One object per scope, in shared memory for a warp or a block.
/// No other thread may use it. All members are internal: the channel, and the owner's copies of its state.
struct owned_channel {
    channel_ref channel;
    detail::exclusive_state state;  ///< a copy
    std::uint32_t checked = 0;      ///< next slot to check for a late response
    std::int64_t orders_due = 0;    ///< when to read commands from the host again, by `clock_ns`
    detail::host_clock_state clock;
    // Copies of the first slots' state.
    detail::owned_call calls[detail::max_calls_at_hand];
    detail::prepared_call prepared[detail::max_calls_at_hand];
};

/// One call. Plain data: keep it in registers, or in shared memory for a block.
struct call_ref {
    std::byte* request = nullptr;  ///< room for the request, to be written in place
    std::uint64_t request_room = 0;
    const std::byte* response = nullptr;  ///< in place, until `release`; bytes of an untrusted peer
    std::uint64_t response_bytes = 0;
    status outcome = status::again;  ///< the result, once the call has ended
    std::uint32_t code = 0;          ///< the handler's code, with `application_error`
    std::uint64_t trace_id = 0;      ///< as given to `submit`
    std::int64_t deadline = 0;       ///< by `clock_ns`
    // Internal: where the call is on the channel.
    std::uint64_t response_room = 0;
    std::uint32_t target = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
};

/// The next piece of a call's response (`poll`, `wait`): a part, or the end. Plain data, one object per scope.
struct arrival_ref {
    const std::byte* response = nullptr;  ///< in place, until `release`; bytes of an untrusted peer
    std::uint64_t response_bytes = 0;
    bool more = false;  ///< a part; another part or the end follows
    // Internal: the slot to release.
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
};

/// Options of one call.
struct call_options {
    std::int64_t timeout_ns = 0;  ///< from now; 0: the channel's `call_timeout`
    std::uint64_t trace_id = 0;   ///< travels to the server
    std::uint64_t max_bytes = 0;  ///< longest response; 0: the channel's `response_bytes`
    std::uint32_t target = 0;     ///< the number from `gpu_channel::resolve`; 0: no target
    /// The response may come in parts, with up to this number of unread parts, each in a slot. 0: in one piece.
    std::uint32_t parts = 0;
    std::int64_t part_timeout_ns = 0;      ///< longest time without a part while there is room for one; 0: no limit
    const trace_context* trace = nullptr;  ///< the trace of the call; read by `submit`, sent if valid
};

}  // namespace accel::device
