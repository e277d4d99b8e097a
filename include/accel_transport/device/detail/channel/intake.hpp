// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/channel_ref.hpp>
#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/try_lock.hpp>

#include <cstddef>
#include <cstdint>

/// Input of a GPU-resident channel: completions, and commands from the host. One thread at a time takes it for all
/// that wait, under a try-lock.
namespace accel::device::detail {

/// Commands from the host are read, from host memory, once in this number of looks that find nothing.
inline constexpr std::uint32_t looks_an_order = 16;
/// … or after so much time, if looks always find something.
inline constexpr std::int64_t max_between_orders_ns = 1'000'000;

ACCEL_HOST_DEVICE inline std::uint64_t word_of(std::uint32_t generation, call_phase phase) noexcept {
    return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(phase);
}
ACCEL_HOST_DEVICE inline std::uint32_t generation_in(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> 32);
}
ACCEL_HOST_DEVICE inline call_phase phase_in(std::uint64_t word) noexcept {
    return static_cast<call_phase>(word & 0xffff'ffffU);
}

/// Sticky: the first reason stays.
ACCEL_HOST_DEVICE inline void fail_channel(const channel_ref& channel, status why,
                                           mlx5::syndrome syndrome = mlx5::syndrome::none) noexcept {
    const std::uint32_t told = static_cast<std::uint32_t>(why) | static_cast<std::uint32_t>(syndrome) << 16;
    std::uint32_t before = 0;
    while (!compare_exchange(&channel.state->failure, before, told))
        if (before != going_away) return;
    mlx5::store_whole(&channel.report->failure, told);
}
/// The server drains.
ACCEL_HOST_DEVICE inline void go_away(const channel_ref& channel) noexcept {
    std::uint32_t good = 0;
    (void)compare_exchange(&channel.state->failure, good, going_away);
}

/// `ok` while the session lives, else what its calls end with.
[[nodiscard]] ACCEL_HOST_DEVICE inline status end_told_by(std::uint32_t failure) noexcept {
    if (failure == going_away) return status::ok;
    const auto why = static_cast<status>(failure & 0xffffU);
    const bool told = why == status::ok || why == status::closed || why == status::device_lost;
    return told ? why : status::peer_lost;
}
[[nodiscard]] ACCEL_HOST_DEVICE inline status end_of(const channel_ref& channel) noexcept {
    return end_told_by(load_relaxed(&channel.state->failure));
}
/// `ok` while calls may begin, else what they are refused with.
[[nodiscard]] ACCEL_HOST_DEVICE inline status refusal_told_by(std::uint32_t failure) noexcept {
    return failure == going_away ? status::closed : end_told_by(failure);
}
[[nodiscard]] ACCEL_HOST_DEVICE inline status refusal_of(const channel_ref& channel) noexcept {
    return refusal_told_by(load_relaxed(&channel.state->failure));
}

/// Nobody waits for the call any more: the host's thread reads this, and tells the server. `number` is no other word's.
ACCEL_HOST_DEVICE inline void tell_cancelled(const channel_ref& channel, const call_ref& call,
                                             std::uint32_t number) noexcept {
    mlx5::store_whole(channel.cancels + call.slot, call.generation);
    mlx5::store_flag(&channel.report->cancels, number);
}
/// False: the server knows the deadline of the call itself.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_deadline_untold(const call_ref& call) noexcept {
    const std::byte* const at = call.request - wire::header_bytes + offsetof(wire::slot_header, deadline_ns);
    return *reinterpret_cast<const std::int64_t*>(at) == INT64_MAX;
}

// Free slots.

inline constexpr std::uint64_t one_change = std::uint64_t{1} << 32;

ACCEL_HOST_DEVICE inline std::uint64_t changed(std::uint64_t head, std::uint32_t first) noexcept {
    return ((head + one_change) & ~std::uint64_t{0xffff'ffffU}) | first;
}

/// `no_call`: none is free.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t take_slot(const channel_ref& channel) noexcept {
    std::uint64_t head = load_acquire(&channel.state->free);
    for (;;) {
        const auto first = static_cast<std::uint32_t>(head);
        if (first == no_call) return no_call;
        // Useful only if nothing has changed since.
        const std::uint32_t next = load_relaxed(&channel.calls[first].next);
        if (hand_over(&channel.state->free, head, changed(head, next))) return first;
    }
}

ACCEL_HOST_DEVICE inline void put_slot_back(const channel_ref& channel, std::uint32_t slot) noexcept {
    std::uint64_t head = load_acquire(&channel.state->free);
    do {
        store_relaxed(&channel.calls[slot].next, static_cast<std::uint32_t>(head));
    } while (!hand_over(&channel.state->free, head, changed(head, slot)));
}

// Completions.

/// Places of completions first: there is never more under way than they hold.
ACCEL_HOST_DEVICE inline void give_back(const channel_ref& channel) noexcept {
    channel_state& state = *channel.state;
    publish_taken(channel.completions);
    if (state.responses_owed == 0) return;
    if (channel.completions.by == engine::direct) {
        for (std::uint32_t i = 0; i < state.responses_owed; ++i) mlx5::take_back(state.receives, state.owed[i]);
        mlx5::post_empty(state.receives, state.responses_owed);
    }
    state.responses_owed = 0;
}

/// A response has come into this slot, for its holder. If the call has ended, this frees the slot. False: no
/// answer is expected there.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool on_response(const channel_ref& channel, std::uint32_t slot) noexcept {
    channel_state& state = *channel.state;
    call_entry& call = channel.calls[slot];
    std::uint64_t word = load_acquire(&call.word);
    for (;;) {
        const call_phase phase = phase_in(word);
        call_phase next = call_phase::free;
        if (phase == call_phase::in_flight)
            next = call_phase::arrived;
        else if (phase == call_phase::overdue)
            next = call_phase::ended;
        else if (phase == call_phase::in_parts)
            next = call_phase::parts_arrived;
        else if (phase == call_phase::lent)
            next = call_phase::room_arrived;
        else if (phase != call_phase::quarantined && phase != call_phase::returning)
            return false;
        if (!hand_over(&call.word, word, word_of(generation_in(word), next))) continue;
        if (phase == call_phase::overdue || phase == call_phase::quarantined) (void)count_up(&state.stale);
        if (next == call_phase::free) {
            count_down(&state.quarantined);
            put_slot_back(channel, slot);
        }
        return true;
    }
}

ACCEL_HOST_DEVICE inline void on_completion(const channel_ref& channel, const mlx5::completion& completion) noexcept {
    channel_state& state = *channel.state;
    const bool sent =
        completion.kind == mlx5::entry_kind::request || completion.kind == mlx5::entry_kind::request_error;
    if (!sent) {
        if (state.responses_owed == responses_at_once) give_back(channel);
        state.owed[state.responses_owed++] = completion.counter;
    }
    if (completion.failure != mlx5::syndrome::none) {
        fail_channel(channel, status::peer_lost, completion.failure);
    } else if (sent) {
        if (!release(channel.sends, completion.counter)) fail_channel(channel, status::system_error);
    } else {
        const std::uint32_t slot = mlx5::from_be(completion.immediate);
        const bool sane =
            completion.kind == mlx5::entry_kind::write_immediate && slot < channel.slots && on_response(channel, slot);
        if (!sane) fail_channel(channel, status::protocol_error);
    }
}

/// Takes one completion. False: there are none.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool take_completions(const channel_ref& channel) noexcept {
    constexpr int most = 16;
    for (int count = 0; count < most; ++count) {
        mlx5::completion completion;
        if (!take(channel.completions, completion)) return count > 0;
        on_completion(channel, completion);
    }
    return true;
}

// Commands from the host.

ACCEL_HOST_DEVICE inline void report(const channel_ref& channel) noexcept {
    channel_state& state = *channel.state;
    channel_report& out = *channel.report;
    mlx5::store_whole(&out.submitted, load_relaxed(&state.submitted));
    mlx5::store_whole(&out.completed, load_relaxed(&state.completed));
    mlx5::store_whole(&out.ended_early, load_relaxed(&state.ended_early));
    mlx5::store_whole(&out.stale, load_relaxed(&state.stale));
    mlx5::store_whole(&out.quarantined, load_relaxed(&state.quarantined));
}

/// `idle`: this look has found no completions. What came before the end is taken before the end, of which a look after
/// that tells (`closed` says that no handler has seen a call). A server that sends forever does not keep it away.
ACCEL_HOST_DEVICE inline void take_orders(const channel_ref& channel, bool idle) noexcept {
    channel_state& state = *channel.state;
    sync_host_clock(channel);
    const std::uint32_t ended = mlx5::load_flag(&channel.orders->ended);
    if (ended == going_away)
        go_away(channel);
    else if (ended != 0 && state.looks_at_end++ >= (idle ? 1 : channel.slots))
        fail_channel(channel, static_cast<status>(ended));
    report(channel);
}

/// Looks for all that wait: first completions, then commands from the host.
ACCEL_HOST_DEVICE inline void look(const channel_ref& channel) noexcept {
    channel_state& state = *channel.state;
    if (!try_lock(&state.lock)) return pause();
    bool orders = clock_ns() - state.last_look > max_between_orders_ns;
    const bool idle = !take_completions(channel);
    if (!idle) {
        state.empty_looks = 0;
    } else {
        if (state.empty_looks == 0) give_back(channel);
        orders = orders || state.empty_looks % looks_an_order == 0;
        ++state.empty_looks;
    }
    if (orders) take_orders(channel, idle);
    unlock(&state.lock);
}

}  // namespace accel::device::detail
