// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/detail/try_lock.hpp>
#include <accel_transport/device/service_ref.hpp>

#include <cstddef>
#include <cstdint>

/// The inputs of a GPU-resident service: completions, and the host's commands. One thread at a time
/// looks, under a try-lock.
namespace accel::device::detail {

/// How the service reaches its device.
[[nodiscard]] ACCEL_HOST_DEVICE inline engine engine_of(const service_ref& service) noexcept {
    return service.completions.by;
}

/// The peer broke the protocol, or its queue pair is of no more use: this session ends, and no other.
ACCEL_HOST_DEVICE inline void fail_session(const service_ref& service, std::uint32_t index, status why,
                                           mlx5::syndrome syndrome = mlx5::syndrome::none) noexcept {
    std::uint32_t open = static_cast<std::uint32_t>(session_phase::open);
    const auto failed = static_cast<std::uint32_t>(session_phase::failed);
    if (!compare_exchange(&service.sessions[index].phase, open, failed)) return;
    (void)count_up(&service.state->failures);
    const std::uint32_t told = static_cast<std::uint32_t>(why) | static_cast<std::uint32_t>(syndrome) << 16;
    mlx5::store_whole(&service.session_reports[index].failure, told);
}

/// Commands are looked for, which is a read of the host's memory, once in this number of looks that find nothing.
inline constexpr std::uint32_t looks_a_command = 16;
/// … or when so much time has passed, if looks always find something.
inline constexpr std::int64_t max_between_commands_ns = 1'000'000;

/// On the host, others may be adding entries meanwhile.
ACCEL_HOST_DEVICE inline session_number number_at(const service_ref& service, std::uint32_t i) noexcept {
#if defined(__CUDA_ARCH__)
    return service.numbers[i & service.numbers_mask];
#else
    return mlx5::load_whole(&service.numbers[i & service.numbers_mask]);
#endif
}

ACCEL_HOST_DEVICE inline std::uint32_t find_session(const service_ref& service, std::uint32_t queue_pair) noexcept {
    if (engine_of(service) == engine::proxy) return queue_pair < service.session_count ? queue_pair : no_session;
    for (std::uint32_t i = queue_pair;; ++i) {
        const session_number entry = number_at(service, i);
        if (entry.session == no_session || entry.queue_pair == queue_pair) return entry.session;
    }
}

// The host's commands.

ACCEL_HOST_DEVICE inline void open_session(const service_ref& service, std::uint32_t index) noexcept {
    session_entry& session = service.sessions[index];
    session.is = service.offers[index];
    begin(session.sends);
    for (std::uint32_t i = 0; i < session.is.slots; ++i) session.generations[i] = session.busy[i] = 0;
    for (std::uint32_t i = 0; i < session.is.slots; ++i) session.parts[i] = {};
    store_release(&session.phase, static_cast<std::uint32_t>(session_phase::open));
}

/// Once nothing of it is in use. Headers that stay behind must not be taken for a later client's, and neither
/// must requests that were posted after its queue pair had gone.
ACCEL_HOST_DEVICE inline void end_session(const service_ref& service, std::uint32_t index) noexcept {
    session_entry& session = service.sessions[index];
    if (load_acquire(&session.open) != 0) return;
    --service.state->closing;
    for (std::uint32_t i = 0; i < session.is.slots; ++i) {
        std::byte* const header = session.is.requests.headers + session.is.requests.stride * i;
        *reinterpret_cast<std::uint32_t*>(header + offsetof(wire::slot_header, generation)) = 0;
    }
    end(session.sends);
    store_release(&session.phase, static_cast<std::uint32_t>(session_phase::none));
    mlx5::store_flag(&service.session_reports[index].closed, session.closing_number);
}

/// Its queue pair has gone: it makes no more completions, and those that are left are nobody's.
ACCEL_HOST_DEVICE inline void close_session(const service_ref& service, const command& order) noexcept {
    session_entry& session = service.sessions[order.session];
    store_release(&session.phase, static_cast<std::uint32_t>(session_phase::closing));
    session.closing_number = order.number;
    ++service.state->closing;
    discard_completions(service.completions, name_of(session.sends));
    end_session(service, order.session);
}

ACCEL_HOST_DEVICE inline void end_closing(const service_ref& service) noexcept {
    const auto closing = static_cast<std::uint32_t>(session_phase::closing);
    for (std::uint32_t i = 0; service.state->closing != 0 && i < service.session_count; ++i)
        if (load_relaxed(&service.sessions[i].phase) == closing) end_session(service, i);
}

ACCEL_HOST_DEVICE inline bool take_command(const service_ref& service) noexcept {
    service_state& state = *service.state;
    const command& next = service.commands[state.commands_taken & service.command_mask];
    if (mlx5::load_flag(&next.number) != state.commands_taken + 1) return false;
    const command order = next;
    ++state.commands_taken;
    if (order.session >= service.session_count) return true;
    if (order.kind == command_kind::open) open_session(service, order.session);
    if (order.kind == command_kind::close) close_session(service, order);
    return true;
}

ACCEL_HOST_DEVICE inline void report(const service_ref& service) noexcept {
    service_state& state = *service.state;
    report_layout& out = *service.report;
    mlx5::store_whole(&out.requests, load_relaxed(&state.requests));
    mlx5::store_whole(&out.replies, load_relaxed(&state.replies));
    mlx5::store_whole(&out.expired, load_relaxed(&state.expired));
    mlx5::store_whole(&out.dropped, load_relaxed(&state.dropped));
}

ACCEL_HOST_DEVICE inline void take_commands(const service_ref& service) noexcept {
    while (take_command(service)) continue;
    end_closing(service);
    sync_host_clock(service);
    service.state->stopping = mlx5::load_whole(&service.orders->stop);
    report(service);
}

// Completions.

/// Under load; the proxy has receives of its own.
ACCEL_HOST_DEVICE inline void give_back(const service_ref& service) noexcept {
    service_state& state = *service.state;
    if (state.arrivals_owed == 0) return;
    if (engine_of(service) == engine::direct) {
        for (std::uint32_t i = 0; i < state.arrivals_owed; ++i) mlx5::take_back(state.receives, state.owed[i]);
        mlx5::post_empty(state.receives, state.arrivals_owed);
    }
    state.arrivals_owed = 0;
    publish_taken(service.completions);
}

/// A message for a slot. Commands are taken first if its session is not known: it may have been opened just
/// now. False: it is dropped.
ACCEL_HOST_DEVICE inline bool on_arrival(const service_ref& service, const mlx5::completion& completion,
                                         std::uint32_t index, ready_entry& out) noexcept {
    const std::int64_t arrival = clock_ns();
    session_entry& session = service.sessions[index];
    const auto open = static_cast<std::uint32_t>(session_phase::open);
    if (load_relaxed(&session.phase) != open) take_commands(service);
    // All at once: each is a way through the GPU's memory.
    const std::uint32_t phase = load_relaxed(&session.phase);
    const std::uint32_t slots = session.is.slots;
    std::uint32_t* const all_busy = session.busy;
    const std::uint32_t released =
        engine_of(service) == engine::direct ? load_relaxed(&session.sends.direct.state->released) : 0;
    if (phase != open) return false;
    const std::uint32_t slot = mlx5::from_be(completion.immediate);
    const bool sane =
        completion.kind == mlx5::entry_kind::write_immediate && slot < slots && load_fenced(&all_busy[slot]) == 0;
    if (!sane) {
        fail_session(service, index, status::protocol_error);
        return false;
    }
    store_relaxed(&all_busy[slot], 1);
    (void)count_up(&session.open);
    out = {index, slot, released, 0, arrival};
    return true;
}

ACCEL_HOST_DEVICE inline bool is_receive(mlx5::entry_kind kind) noexcept {
    return kind != mlx5::entry_kind::request && kind != mlx5::entry_kind::request_error;
}

/// True: a request has arrived.
ACCEL_HOST_DEVICE inline bool on_completion(const service_ref& service, const mlx5::completion& completion,
                                            ready_entry& out) noexcept {
    service_state& state = *service.state;
    const bool receive = is_receive(completion.kind);
    if (receive) {
        if (state.arrivals_owed == arrivals_at_once) give_back(service);
        state.owed[state.arrivals_owed++] = completion.counter;
    }
    const std::uint32_t index = find_session(service, completion.queue_pair);
    if (index == no_session) return false;
    if (completion.failure != mlx5::syndrome::none)
        fail_session(service, index, status::peer_lost, completion.failure);
    else if (receive)
        return on_arrival(service, completion, index, out);
    else if (!release(service.sessions[index].sends, completion.counter))
        fail_session(service, index, status::system_error);
    return false;
}

/// Completions up to the first request, and no further: whoever has taken that one works on it, and the next
/// one looks on. `took`: there were any.
ACCEL_HOST_DEVICE inline bool next_arrival(const service_ref& service, ready_entry& out, bool& took) noexcept {
    constexpr int most = 16;
    took = false;
    for (int count = 0; count < most; ++count) {
        mlx5::completion completion;
        if (!take(service.completions, completion)) return false;
        took = true;
        if (on_completion(service, completion, out)) return true;
    }
    return false;
}

/// Under the lock. True: a request has arrived.
ACCEL_HOST_DEVICE inline bool look(const service_ref& service, ready_entry& out) noexcept {
    service_state& state = *service.state;
    if (clock_ns() - state.last_look > max_between_commands_ns) take_commands(service);
    bool took = false;
    if (next_arrival(service, out, took)) {
        state.empty_looks = 0;
        return true;
    }
    if (took) return false;
    // While there is time.
    if (state.empty_looks == 0) {
        give_back(service);
        publish_taken(service.completions);
    }
    if (state.empty_looks++ % looks_a_command == 0) take_commands(service);
    return false;
}

/// The oldest arrival that has not been taken.
ACCEL_HOST_DEVICE inline status next_ready(const service_ref& service, ready_entry& out) noexcept {
    service_state& state = *service.state;
    if (!try_lock(&state.lock)) {
        pause();
        return status::again;
    }
    status found = status::again;
    if (state.stopping != 0) {
        report(service);
        found = status::closed;
    } else if (state.ready_head != state.ready_tail) {
        if (state.ready_seen == state.ready_head) ++state.ready_seen;
        out = service.ready[state.ready_head++ & service.ready_mask];
        found = status::ok;
    } else if (look(service, out)) {
        found = status::ok;
    }
    unlock(&state.lock);
    return found;
}

/// Takes completions for the sake of those of sends; requests that stand before them are kept for later.
ACCEL_HOST_DEVICE inline void make_room(const service_ref& service) noexcept {
    service_state& state = *service.state;
    if (!try_lock(&state.lock)) return;
    ready_entry arrived;
    bool took = false;
    if (next_arrival(service, arrived, took)) service.ready[state.ready_tail++ & service.ready_mask] = arrived;
    unlock(&state.lock);
}

/// One work request of a session, by its send queue: `to` holds that where the engine is direct.
ACCEL_HOST_DEVICE inline status try_post(const service_ref& service, std::uint32_t session,
                                         const mlx5::shared_send_queue_ref& to, mlx5::work_request& request,
                                         mlx5::counter_snapshot& seen) noexcept {
    if (engine_of(service) == engine::direct) return mlx5::post(to, request, signal_interval(to), seen);
    return proxy::post(service.sessions[session].sends.proxied, request);
}

/// Posts by `attempt`, and waits for room.
template <class Attempt>
ACCEL_HOST_DEVICE status post_when_there_is_room(const service_ref& service, const Attempt& attempt) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    for (std::int64_t start = 0;;) {
        const status posted = attempt();
        if (posted != status::again) return posted;
        const std::int64_t now = clock_ns();
        if (start == 0) start = now;
        if (now - start > patience_ns) return status::peer_lost;
        make_room(service);
    }
}
ACCEL_HOST_DEVICE inline status post(const service_ref& service, std::uint32_t session,
                                     const mlx5::shared_send_queue_ref& to, mlx5::work_request& request,
                                     mlx5::counter_snapshot& seen) noexcept {
    return post_when_there_is_room(service, [&] { return try_post(service, session, to, request, seen); });
}

}  // namespace accel::device::detail
