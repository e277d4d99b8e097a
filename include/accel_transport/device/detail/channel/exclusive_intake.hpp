// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/channel_ref.hpp>
#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/channel/calls.hpp>
#include <accel_transport/device/detail/loaded_quad.hpp>
#include <accel_transport/device/detail/owned_sends.hpp>

#include <cstddef>
#include <cstdint>

/// The inputs of a channel's owner: responses, which it finds by looking at their slots, completions of its
/// sends, and commands from the host.
namespace accel::device::detail {

/// Commands from the host and the completions of sends, which may lie across the bus, are read once in this time.
inline constexpr std::int64_t between_channel_orders_ns = 250'000;

/// Sticky: the first reason stays.
ACCEL_HOST_DEVICE_SELDOM inline void fail_channel(owned_channel& mine, status why,
                                                  mlx5::syndrome syndrome = mlx5::syndrome::none) noexcept {
    if (mine.state.failure != 0 && mine.state.failure != going_away) return;
    mine.state.failure = static_cast<std::uint32_t>(why) | static_cast<std::uint32_t>(syndrome) << 16;
    mine.channel.exclusive.channel->state.failure = mine.state.failure;
    mlx5::store_whole(&mine.channel.report->failure, mine.state.failure);
}
/// The server drains.
ACCEL_HOST_DEVICE inline void go_away(owned_channel& mine) noexcept {
    if (mine.state.failure == 0) mine.channel.exclusive.channel->state.failure = mine.state.failure = going_away;
}

/// `ok` while the session lives, else what its calls end with.
[[nodiscard]] ACCEL_HOST_DEVICE inline status end_of(const owned_channel& mine) noexcept {
    return end_told_by(mine.state.failure);
}
/// `ok` while calls may begin, else what they are refused with.
[[nodiscard]] ACCEL_HOST_DEVICE inline status refusal_of(const owned_channel& mine) noexcept {
    return refusal_told_by(mine.state.failure);
}

// Slots.

ACCEL_HOST_DEVICE inline owned_call call_at(const owned_channel& mine, std::uint32_t slot) noexcept {
    return slot < max_calls_at_hand ? mine.calls[slot] : mine.channel.exclusive.calls[slot];
}
ACCEL_HOST_DEVICE inline void set_call(owned_channel& mine, std::uint32_t slot, const owned_call& call) noexcept {
    if (slot < max_calls_at_hand) mine.calls[slot] = call;
    mine.channel.exclusive.calls[slot] = call;
}
ACCEL_HOST_DEVICE inline void set_phase(owned_channel& mine, std::uint32_t slot, call_phase phase) noexcept {
    owned_call call = call_at(mine, slot);
    call.phase = phase;
    set_call(mine, slot, call);
}
ACCEL_HOST_DEVICE inline void free_slot(owned_channel& mine, std::uint32_t slot) noexcept {
    owned_call call = call_at(mine, slot);
    call.phase = call_phase::free;
    call.next = mine.state.first_free;
    set_call(mine, slot, call);
    mine.channel.exclusive.channel->state.first_free = mine.state.first_free = slot;
}

/// True: the response to this call is there, and what the server wrote before is seen. Its last word alone counts: any
/// other than the call's own generation is of an earlier call, or a lie, and means that there is none.
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE bool has_response(const owned_channel& mine, std::uint32_t slot,
                                                         std::uint32_t generation) noexcept {
    const std::byte* const word = header_of(mine.channel.responses, slot) + wire::arrival_word_offset;
    return mlx5::load_flag(reinterpret_cast<const std::uint32_t*>(word)) == generation;
}

/// Frees the slots of calls that ended before their response, if it has come since. At most `looks` slots.
ACCEL_HOST_DEVICE_SELDOM inline void take_late_responses(owned_channel& mine, std::uint32_t looks) noexcept {
    for (; looks > 0 && mine.state.counters.quarantined > 0; --looks) {
        const std::uint32_t slot = mine.checked;
        mine.checked = slot + 1 < mine.channel.exclusive.slots ? slot + 1 : 0;
        const owned_call call = call_at(mine, slot);
        const bool room = call.phase == call_phase::returning;
        if (!room && call.phase != call_phase::quarantined) continue;
        if (!has_response(mine, slot, call.generation)) continue;
        --mine.state.counters.quarantined;
        if (!room) ++mine.state.counters.stale;
        free_slot(mine, slot);
    }
    mine.channel.exclusive.channel->state.counters = mine.state.counters;
}

// Completions of sends.

/// Where a proxy posts, it tells how many descriptors are done. The host hears of failures.
ACCEL_HOST_DEVICE inline void take_released(owned_channel& mine) noexcept {
    owned_sends& sends = mine.state;
    const std::uint32_t released = mlx5::load_flag(mine.channel.exclusive.channel->proxied.released);
    if (released - sends.released <= sends.posted - sends.released) sends.released = released;
}
/// Frees the room of what the adapter is done with.
ACCEL_HOST_DEVICE_SELDOM inline void take_completions(owned_channel& mine) noexcept {
    owned_sends& sends = mine.state;
    exclusive_channel& kept = *mine.channel.exclusive.channel;
    if (mine.channel.exclusive.by == engine::proxy) {
        take_released(mine);
    } else {
        constexpr int most = 8;
        mlx5::completion done;
        int count = 0;
        for (; count < most && mlx5::take(kept.completions, done); ++count) {
            const auto distance = static_cast<std::uint16_t>(done.counter - static_cast<std::uint16_t>(sends.released));
            if (done.failure != mlx5::syndrome::none)
                fail_channel(mine, status::peer_lost, done.failure);
            else if (done.kind != mlx5::entry_kind::request || distance >= sends.posted - sends.released)
                fail_channel(mine, status::system_error);
            else
                sends.released += distance + 1U;
        }
        if (count > 0) mlx5::publish_taken(kept.completions);
    }
    kept.state.released = sends.released;
}

// Commands from the host.

ACCEL_HOST_DEVICE inline void report(owned_channel& mine) noexcept {
    const channel_counters& counters = mine.state.counters;
    channel_report& out = *mine.channel.report;
    mlx5::store_whole(&out.submitted, counters.submitted);
    mlx5::store_whole(&out.completed, counters.completed);
    mlx5::store_whole(&out.ended_early, counters.ended_early);
    mlx5::store_whole(&out.stale, counters.stale);
    mlx5::store_whole(&out.quarantined, counters.quarantined);
}

/// The clock's part of `owned_channel`, as `sync_host_clock` wants it.
struct channel_clock {
    host_clock_state* state;
    const channel_orders* orders;
    channel_report* report;
};

/// The work that can wait: all that lies across the bus.
ACCEL_HOST_DEVICE_SELDOM inline void look_elsewhere(owned_channel& mine, std::int64_t now) noexcept {
    constexpr std::uint32_t slots_a_look = 16;
    exclusive_channel& kept = *mine.channel.exclusive.channel;
    mine.orders_due = now + between_channel_orders_ns;
    sync_host_clock(channel_clock{&mine.clock, mine.channel.orders, mine.channel.report});
    kept.clock = mine.clock;
    take_completions(mine);
    const std::uint32_t ended = mlx5::load_flag(&mine.channel.orders->ended);
    if (ended == going_away)
        go_away(mine);
    else if (ended != 0)
        fail_channel(mine, static_cast<status>(ended));
    take_late_responses(mine, slots_a_look);
    report(mine);
}

// The host's part, before the first owner.

inline void prepare_sends(const send_port& port, const completion_port& completions, owned_sends& out) noexcept {
    const mlx5::send_queue_ref& queue = port.direct.queue;
    const bool by_proxy = port.by == engine::proxy;
    out.ring = by_proxy ? reinterpret_cast<std::byte*>(port.proxied.ring) : queue.ring;
    out.doorbell = queue.doorbell;
    out.doorbell_record = queue.doorbell_record;
    out.wqebb_mask = (by_proxy ? port.proxied.count : queue.wqebbs) - 1;
    out.limit = out.wqebb_mask + 1;
    if (!by_proxy && completions.direct.count < out.limit) out.limit = completions.direct.count;
}

/// The common part of the work requests of a slot's calls.
inline void prepare_call(const channel_ref& channel, std::uint32_t slot, prepared_call& out) noexcept {
    const peer_slots_layout& peer = channel.peer;
    std::byte* const header = header_of(channel.requests, slot);
    out = {};
    out.header.qpn_ds = mlx5::qpn_ds_of(channel.sends.direct.queue, prepared_segments);
    out.header.immediate = mlx5::to_be32(slot);
    out.header.key = mlx5::to_be32(channel.requests.key);
    if (channel.plain_requests != 0) out.header.operation = mlx5::opcode::write;
    out.header.remote = {mlx5::to_be64(peer.headers + peer.headers_stride * slot), mlx5::to_be32(peer.headers_key),
                         mlx5::be32{}};
    out.header.address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(header));
    out.payload_to = {mlx5::to_be64(peer.payloads + peer.payloads_stride * slot), mlx5::to_be32(peer.payloads_key),
                      mlx5::be32{}};
    out.payload_address = mlx5::to_be64(reinterpret_cast<std::uint64_t>(header + wire::header_bytes));
}

/// For the proxy: requests travel as the answers of a service do.
[[nodiscard]] inline proxy::answer_way way_of_requests(const channel_ref& channel) noexcept {
    proxy::answer_way out;
    out.headers = reinterpret_cast<std::uint64_t>(channel.requests.headers);
    out.stride = channel.requests.stride;
    out.key = channel.requests.key;
    out.slots = channel.exclusive.slots;
    out.longest = wire::header_bytes + channel.requests.capacity;
    out.peer_headers = channel.peer.headers;
    out.peer_stride = channel.peer.headers_stride;
    out.peer_key = channel.peer.headers_key;
    out.plain = channel.plain_requests;
    return out;
}

/// By one thread.
[[nodiscard]] ACCEL_HOST_DEVICE inline status own_channel(const channel_ref& channel, owned_channel& out) noexcept {
    if (!is_own_version(channel.layout)) return status::unsupported;
    out = {};
    out.channel = channel;
    if (channel.exclusive.channel == nullptr) return status::ok;
    const exclusive_channel& kept = *channel.exclusive.channel;
    out.state = kept.state;
    out.clock = kept.clock;
    for (std::uint32_t i = 0; i < max_calls_at_hand && i < channel.exclusive.slots; ++i) {
        out.calls[i] = channel.exclusive.calls[i];
        out.prepared[i] = channel.exclusive.prepared[i];
    }
    return status::ok;
}

}  // namespace accel::device::detail
