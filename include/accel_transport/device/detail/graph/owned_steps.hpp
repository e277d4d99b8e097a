// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/graph/steps.hpp>

#include <cstddef>
#include <cstdint>

/// The library's steps before and after recorded kernels where each session has one owner: recording i of n owns the
/// sessions of part i. `owned_sessions` stays in the GPU's memory from iteration to iteration; a step works on it where
/// its threads reach it soonest. No step locks anything. Not for applications.
namespace accel::device::detail {

/// The requests that an iteration begins with.
struct gathered {
    std::uint32_t count = 0;
    bool stopped = false;  ///< the service stops: there are no requests
};

/// Once, before the first iteration. By one thread. False: these sessions cannot be owned.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool own_part(const service_ref& service, const graph_memory& memory,
                                                     owned_sessions& mine) noexcept {
    if (mine.at.sessions != nullptr) return true;
    return own_sessions(service, memory.iteration.instance, memory.instances, mine) == status::ok;
}

/// As `take`, while requests wait to be served: leaves commands from the host, which lie across the bus, for later.
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE status take_more(owned_sessions& mine, exchange_ref& out) noexcept {
    constexpr std::int64_t later = INT64_MAX / 2;
    const std::int64_t due = mine.orders_due;
    const auto set_due = [&](std::int64_t time) {
        (void)by_first_of<Scope>([&] {
            mine.orders_due = time;
            return status::ok;
        });
    };
    set_due(later);
    const status found = take<Scope>(mine, out);
    set_due(due);
    return found;
}

/// Waits for one request, at most `timeout_ns`, then takes those that are ready. By the scope's threads together.
/// Refused requests do not count: a client that sends nothing else keeps no other waiting forever.
template <class Scope>
[[nodiscard]] ACCEL_HOST_DEVICE_INLINE gathered gather_owned(owned_sessions& mine, const graph_memory& memory,
                                                             std::int64_t timeout_ns) noexcept {
    const graph_iteration& iteration = memory.iteration;
    gathered out;
    for (std::uint32_t looks = 0; out.count < iteration.batch && looks < 2 * iteration.batch; ++looks) {
        exchange_ref& next = memory.exchanges[out.count];
        const status found = out.count == 0 ? wait<Scope>(mine, next, timeout_ns) : take_more<Scope>(mine, next);
        out.stopped = found == status::closed && out.count == 0;
        if (found != status::ok) break;
        const status begun = by_first_of<Scope>([&] {
            const bool good = begin_request(mine, iteration, next, iteration.answers[out.count]);
            return good ? status::ok : status::again;
        });
        if (begun == status::ok) ++out.count;
    }
    return out;
}

/// Tells the nodes behind the first. By one thread.
ACCEL_HOST_DEVICE inline void tell_gathered(const graph_memory& memory, const gathered& what) noexcept {
    memory.state->count = what.count;
    memory.state->stopped = what.stopped ? 1 : 0;
}

/// Answers `count` requests, one after the other; the last one's doorbell is the iteration's end. By one thread.
ACCEL_HOST_DEVICE inline void end_owned_requests(owned_sessions& mine, const graph_memory& memory,
                                                 std::uint32_t count) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
        const exchange_ref& exchange = memory.exchanges[i];
        const answer with = answer_of(exchange, memory.iteration.answers[i]);
        if (exchange.parts != nullptr) [[unlikely]] {
            (void)end_parts(mine, exchange, with);
            if (i + 1 == count) mark_point(memory, iteration_point::answered);
            continue;
        }
        const given_answer given = give_answer(mine, exchange, with);
        if (i + 1 == count) mark_point(memory, iteration_point::answered);
        account_for(mine, exchange, given);
    }
}

}  // namespace accel::device::detail
