// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/device/detail/mlx5/shared_send_queue.hpp>
#include <accel_transport/device/detail/proxy/queue.hpp>

#include <cstdint>

/// The two ways from a GPU to an RDMA device, behind one set of functions: its queues mapped into the GPU, or
/// rings to a thread of the host that posts. The choice is made before the kernel runs and is the same
/// for all of its ports, so all threads take the same branch. No step waits.
namespace accel::device::detail {

/// The kind of engine.
enum class engine : std::uint32_t {
    direct,  ///< mlx5 queues where they lie; the GPU rings the doorbell
    proxy,   ///< descriptors into a ring in pinned memory; `kernels/proxy/proxy.hpp` posts them
};

/// One connection's send port, for any number of threads. Plain data that owns nothing; only its engine's
/// part is valid.
struct send_port {
    engine by = engine::direct;
    mlx5::shared_send_queue_ref direct;
    proxy::send_queue_ref proxied;
};

/// Completions of sends and arrivals of all connections, for one thread at a time. Likewise.
struct completion_port {
    engine by = engine::direct;
    mlx5::completion_queue_ref direct;
    proxy::completion_queue_ref proxied;
};

/// The number by which completions name the connection (`completion::queue_pair`).
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t name_of(const send_port& port) noexcept {
    return port.by == engine::direct ? port.direct.queue.queue_pair : port.proxied.queue_pair;
}

/// The connection begins anew: its queue pair has been reset, or its ring cleared, since it was last used.
ACCEL_HOST_DEVICE inline void begin(const send_port& port) noexcept {
    if (port.by == engine::direct) {
        *port.direct.state = {};
        mlx5::clear_ready_requests(port.direct);
    } else {
        *port.proxied.state = {};
    }
}
/// Stops the port: nothing of it is sent any more, not even by a later connection.
ACCEL_HOST_DEVICE inline void end(const send_port& port) noexcept {
    if (port.by == engine::direct) mlx5::store_whole(port.direct.queue.doorbell_record, mlx5::be32{});
}

/// After this number of WQEBBs a request asks for a completion, so that their room comes back.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t signal_interval(
    const mlx5::shared_send_queue_ref& queue) noexcept {
    return queue.queue.wqebbs / 4;
}

/// Reads the counters for `post`; reading them early makes posting faster.
[[nodiscard]] ACCEL_HOST_DEVICE inline mlx5::counter_snapshot snapshot_of(const send_port& port) noexcept {
    return port.by == engine::direct ? mlx5::snapshot_of(port.direct) : mlx5::counter_snapshot{};
}

/// One request of at most one range, which does not carry its bytes. `again`: there is no room; completions
/// have to be taken for it to come. Completions are asked for as room needs them, and all of `request.flags`
/// is overwritten. `seen` may be old, and is kept up.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const send_port& to, mlx5::work_request& request,
                                                   mlx5::counter_snapshot& seen) noexcept {
    if (to.by == engine::direct) return mlx5::post(to.direct, request, signal_interval(to.direct), seen);
    request.flags = 0;
    return proxy::post(to.proxied, request);
}
[[nodiscard]] ACCEL_HOST_DEVICE inline status post(const send_port& to, mlx5::work_request& request) noexcept {
    mlx5::counter_snapshot seen = snapshot_of(to);
    return post(to, request, seen);
}

/// The same, and its completion is reported: `sent_by` then counts it. For the only poster of a port.
[[nodiscard]] ACCEL_HOST_DEVICE inline status post_and_tell(const send_port& to, mlx5::work_request& request) noexcept {
    mlx5::counter_snapshot seen = snapshot_of(to);
    request.flags = mlx5::flag_signalled;
    return to.by == engine::direct ? mlx5::post(to.direct, request, 0, seen) : proxy::post(to.proxied, request);
}
/// How much has been posted, and how much of that is known to have been done: free-running, in whatever the
/// engine counts.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t posted_by(const send_port& port) noexcept {
    if (port.by == engine::proxy) return load_relaxed(&port.proxied.state->reserved);
    return static_cast<std::uint32_t>(load_relaxed(&port.direct.state->reserved));
}
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t sent_by(const send_port& port) noexcept {
    return port.by == engine::direct ? load_acquire(&port.direct.state->released)
                                     : mlx5::load_flag(port.proxied.released);
}
/// True: this number of requests of one range would not be refused with `again`.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool has_room(const send_port& port, std::uint32_t requests) noexcept {
    const std::uint32_t all = port.by == engine::direct ? port.direct.queue.wqebbs : port.proxied.count;
    return all - (posted_by(port) - sent_by(port)) >= requests;
}

/// A completion of a send has been taken: its room is free. False: nothing that is under way has its number.
/// By one thread at a time.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool release(const send_port& port, std::uint16_t counter) noexcept {
    return port.by == engine::direct ? mlx5::release(port.direct, counter) : proxy::release(port.proxied, counter);
}

/// Takes the next completion, if there is one. Its place is given back by `publish_taken`. A receive that it
/// has used up is the taker's to post again where the engine is `direct`, and the proxy's else.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool take(const completion_port& from, mlx5::completion& out) noexcept {
    return from.by == engine::direct ? mlx5::take(from.direct, out) : proxy::take(from.proxied, out);
}

/// True: `take` would find one.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_next_there(const completion_port& from) noexcept {
    return from.by == engine::direct ? mlx5::is_next_there(from.direct) : proxy::is_next_there(from.proxied);
}

/// Gives back the places of all completions taken so far.
ACCEL_HOST_DEVICE inline void publish_taken(const completion_port& port) noexcept {
    if (port.by == engine::direct)
        mlx5::publish_taken(port.direct);
    else
        proxy::publish_taken(port.proxied);
}

/// Marks the connection's completions that have not been taken as those of `mlx5::no_queue_pair`. Call it
/// after the queue pair has been reset or destroyed, or the proxy has removed it.
ACCEL_HOST_DEVICE inline void discard_completions(const completion_port& port, std::uint32_t name) noexcept {
    if (port.by == engine::direct)
        mlx5::discard_completions(port.direct, name);
    else
        proxy::discard_completions(port.proxied, name);
}

}  // namespace accel::device::detail
