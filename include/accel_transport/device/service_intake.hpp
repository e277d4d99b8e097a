#pragma once

#include <accel_transport/device/clock.hpp>
#include <accel_transport/device/service_layout.hpp>

#include <cstddef>
#include <cstdint>

/// What comes in at a service that lives on a GPU: completions, and the host's commands. One thread at a time
/// looks, under a lock that nobody waits for.
namespace accel::device {

/// A service as its kernels see it; passed to them by value. Owns nothing: it is good until the service has
/// been stopped.
struct service_ref {
    service_state* state = nullptr;
    session_entry* sessions = nullptr;
    std::uint32_t session_count = 0;
    /// By the number of a queue pair, with linear probing: its session's index, or `no_session`.
    const std::uint32_t* session_of = nullptr;
    std::uint32_t session_of_mask = 0;
    ready_entry* ready = nullptr;  ///< a ring, with room for every receive
    std::uint32_t ready_mask = 0;
    mlx5::completion_queue_ref completions;
    const orders_layout* orders = nullptr;
    const command* commands = nullptr;  ///< a ring
    std::uint32_t command_mask = 0;
    const session_offer* offers = nullptr;
    report_layout* report = nullptr;
    session_report* session_reports = nullptr;
};

inline constexpr std::uint32_t no_session = 0xffff'ffffU;

namespace detail {

/// The peer broke the protocol, or its queue pair is of no more use: this session ends, and no other.
ACCEL_HOST_DEVICE inline void fail_session(const service_ref& service, std::uint32_t index,
                                           status why) noexcept {
    std::uint32_t open = static_cast<std::uint32_t>(session_phase::open);
    const auto failed = static_cast<std::uint32_t>(session_phase::failed);
    if (!compare_exchange(&service.sessions[index].phase, open, failed)) return;
    mlx5::store_whole(&service.session_reports[index].failure, static_cast<std::uint32_t>(why));
}

/// Commands are looked for, which is a read of the host's memory, once in so many looks that find nothing.
inline constexpr std::uint32_t looks_a_command = 16;
/// … or of all looks, when they always find something.
inline constexpr std::uint32_t looks_a_busy_command = 1024;

ACCEL_HOST_DEVICE inline bool try_lock(std::uint32_t* lock) noexcept {
    std::uint32_t open = 0;
    return load_relaxed(lock) == 0 && compare_exchange(lock, open, 1);
}
ACCEL_HOST_DEVICE inline void unlock(std::uint32_t* lock) noexcept {
    store_release(lock, 0);
}

ACCEL_HOST_DEVICE inline std::uint32_t find_session(const service_ref& service,
                                                    std::uint32_t queue_pair) noexcept {
    for (std::uint32_t i = queue_pair;; ++i) {
        const std::uint32_t index = service.session_of[i & service.session_of_mask];
        if (index == no_session || service.sessions[index].sends.queue.queue_pair == queue_pair) return index;
    }
}

// The host's commands.

ACCEL_HOST_DEVICE inline void open_session(const service_ref& service, std::uint32_t index) noexcept {
    session_entry& session = service.sessions[index];
    session.is = service.offers[index];
    *session.sends.state = {};
    mlx5::clear_whole(session.sends);
    for (std::uint32_t i = 0; i < session.is.slots; ++i) session.generations[i] = session.busy[i] = 0;
    session.posted = 0;
    ++session.epoch;
    store_release(&session.phase, static_cast<std::uint32_t>(session_phase::open));
}

/// Once nothing of it is in use. Headers that stay behind must not be taken for a later client's.
ACCEL_HOST_DEVICE inline void end_session(const service_ref& service, std::uint32_t index) noexcept {
    session_entry& session = service.sessions[index];
    if (load_acquire(&session.open) != 0) return;
    for (std::uint32_t i = 0; i < session.is.slots; ++i) {
        std::byte* const header = session.is.requests.headers + session.is.requests.stride * i;
        *reinterpret_cast<std::uint32_t*>(header + offsetof(wire::slot_header, generation)) = 0;
    }
    store_release(&session.phase, static_cast<std::uint32_t>(session_phase::none));
    mlx5::order_wqe_before_doorbell_record();
    mlx5::store_whole(&service.session_reports[index].closed, session.closing_number);
}

/// Its queue pair has been reset: it makes no more completions, and those that are left are nobody's.
ACCEL_HOST_DEVICE inline void close_session(const service_ref& service, const command& order) noexcept {
    session_entry& session = service.sessions[order.session];
    store_release(&session.phase, static_cast<std::uint32_t>(session_phase::closing));
    session.closing_number = order.number;
    mlx5::disown(service.completions, session.sends.queue.queue_pair);
    end_session(service, order.session);
}

ACCEL_HOST_DEVICE inline void end_closing(const service_ref& service) noexcept {
    const auto closing = static_cast<std::uint32_t>(session_phase::closing);
    for (std::uint32_t i = 0; i < service.session_count; ++i) {
        if (load_relaxed(&service.sessions[i].phase) == closing) end_session(service, i);
    }
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

/// A tick that is seen at once tells how the two clocks differ.
ACCEL_HOST_DEVICE inline void look_at_clock(const service_ref& service) noexcept {
    constexpr std::int64_t at_once_ns = 20'000;
    service_state& state = *service.state;
    const std::int64_t before = state.last_look;
    const std::uint32_t tick = mlx5::load_flag(&service.orders->clock_tick);
    state.last_look = clock_ns();
    if (tick == state.clock_seen) return;
    if (state.last_look - before < at_once_ns) {
        state.clock_offset = mlx5::load_whole(&service.orders->clock_ns) - state.last_look;
        state.clock_seen = tick;
    }
    mlx5::store_whole(&service.report->clock_seen, tick);
}

ACCEL_HOST_DEVICE inline void report(const service_ref& service) noexcept {
    service_state& state = *service.state;
    report_layout& out = *service.report;
    mlx5::store_whole(&out.requests, load_relaxed(&state.requests));
    mlx5::store_whole(&out.replies, load_relaxed(&state.replies));
    mlx5::store_whole(&out.expired, load_relaxed(&state.expired));
    mlx5::store_whole(&out.dropped, load_relaxed(&state.dropped));
    mlx5::store_whole(&out.commands_taken, state.commands_taken);
    mlx5::store_whole(&out.queue_failure, state.completions.first_failure);
}

ACCEL_HOST_DEVICE inline void take_commands(const service_ref& service) noexcept {
    while (take_command(service)) continue;
    end_closing(service);
    look_at_clock(service);
    service.state->stopping = mlx5::load_whole(&service.orders->stop);
    report(service);
}

// Completions.

ACCEL_HOST_DEVICE inline void give_receives_back(const service_ref& service) noexcept {
    service_state& state = *service.state;
    if (state.receives_owed == 0) return;
    for (std::uint32_t i = 0; i < state.receives_owed; ++i) mlx5::take_back(state.receives, state.owed[i]);
    mlx5::post_empty(state.receives, state.receives_owed);
    state.receives_owed = 0;
    mlx5::publish_taken(service.completions);
}

/// A message for a slot. Commands are taken first if its session is not known: it may have been opened just
/// now.
ACCEL_HOST_DEVICE inline void on_arrival(const service_ref& service, const mlx5::completion& completion,
                                         std::uint32_t index) noexcept {
    service_state& state = *service.state;
    session_entry& session = service.sessions[index];
    const auto open = static_cast<std::uint32_t>(session_phase::open);
    if (load_relaxed(&session.phase) != open) take_commands(service);
    if (load_relaxed(&session.phase) != open) return;
    const std::uint32_t slot = mlx5::from_be(completion.immediate);
    const bool sane = completion.kind == mlx5::entry_kind::write_immediate && slot < session.is.slots &&
                      load_acquire(&session.busy[slot]) == 0;
    if (!sane) return fail_session(service, index, status::protocol_error);
    session.busy[slot] = 1;
    (void)count_up(&session.open);
    ready_entry& made = service.ready[state.ready_tail & service.ready_mask];
    made.session = index;
    made.slot = slot;
    made.epoch = session.epoch;
    made.arrival = clock_ns();
    ++state.ready_tail;
}

ACCEL_HOST_DEVICE inline bool is_receive(mlx5::entry_kind kind) noexcept {
    return kind != mlx5::entry_kind::request && kind != mlx5::entry_kind::request_error;
}

ACCEL_HOST_DEVICE inline void on_completion(const service_ref& service,
                                            const mlx5::completion& completion) noexcept {
    service_state& state = *service.state;
    if (is_receive(completion.kind)) {
        state.owed[state.receives_owed++] = completion.counter;
    }
    const std::uint32_t index = find_session(service, completion.queue_pair);
    if (index == no_session) return;
    if (completion.failure != mlx5::syndrome::none) {
        return fail_session(service, index, status::peer_lost);
    }
    if (is_receive(completion.kind)) return on_arrival(service, completion, index);
    if (!mlx5::release(service.sessions[index].sends, completion.counter)) {
        fail_session(service, index, status::system_error);
    }
}

/// What has completed, up to the first arrival: whoever took that one works on it, and the next one looks on.
ACCEL_HOST_DEVICE inline bool take_completions(const service_ref& service) noexcept {
    constexpr int most = 16;
    service_state& state = *service.state;
    const std::uint32_t before = state.ready_tail;
    int count = 0;
    for (mlx5::completion completion; count < most && state.ready_tail == before; ++count) {
        if (!mlx5::take(service.completions, completion)) break;
        if (state.receives_owed == receives_at_once) give_receives_back(service);
        on_completion(service, completion);
    }
    return count > 0;
}

/// Under the lock.
ACCEL_HOST_DEVICE inline void look(const service_ref& service) noexcept {
    service_state& state = *service.state;
    if (++state.looks % looks_a_busy_command == 0) take_commands(service);
    if (take_completions(service)) {
        state.empty_looks = 0;
        return;
    }
    // While there is time.
    if (state.empty_looks == 0) {
        give_receives_back(service);
        mlx5::publish_taken(service.completions);
    }
    if (state.empty_looks++ % looks_a_command == 0) take_commands(service);
}

/// The oldest arrival that has not been taken.
ACCEL_HOST_DEVICE inline status next_ready(const service_ref& service, ready_entry& out) noexcept {
    service_state& state = *service.state;
    if (!try_lock(&state.lock)) {
        pause();
        return status::again;
    }
    status found = status::again;
    if (state.ready_head == state.ready_tail) look(service);
    if (state.ready_head != state.ready_tail) {
        out = service.ready[state.ready_head & service.ready_mask];
        ++state.ready_head;
        found = status::ok;
    } else if (state.stopping != 0) {
        report(service);
        found = status::closed;
    }
    unlock(&state.lock);
    return found;
}

/// One work request of a session. What nobody asks for completes with a later one.
ACCEL_HOST_DEVICE inline status post(const service_ref& service, session_entry& session,
                                     mlx5::work_request& request) noexcept {
    constexpr std::int64_t patience_ns = 100'000'000;
    const std::uint32_t quarter = session.sends.queue.blocks / 4;
    const bool due = count_up(&session.posted) % quarter == quarter - 1;
    request.flags = due ? mlx5::flag_signalled : std::uint8_t{0};
    for (std::int64_t start = 0;;) {
        const status posted = mlx5::post(session.sends, request);
        if (posted != status::again) return posted;
        if (start == 0) start = clock_ns();
        // Completions of this queue stand behind arrivals, for which there is room.
        if (try_lock(&service.state->lock)) {
            (void)take_completions(service);
            unlock(&service.state->lock);
        }
        if (clock_ns() - start > patience_ns) return status::peer_lost;
    }
}

}  // namespace detail

}  // namespace accel::device
