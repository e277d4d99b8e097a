// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "kernels/kernel_memory.hpp"
#include "kernels/proxy/proxy_threads.hpp"
#include "kernels/queues/devx_queue_pair.hpp"
#include "kernels/service_sizes.hpp"
#include "verbs/async_events.hpp"
#include "verbs/queues.hpp"

#include <accel_transport/detail/mlx5/receive_queue.hpp>
#include <accel_transport/device/detail/engine.hpp>
#include <accel_transport/gpu_options.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace accel::gpu {

/// The queue pair of one connection after another, and its send port.
struct session_queue {
    std::uint32_t index = 0;  ///< the proxy's completions name it by this
    std::uint32_t sends = 0;  ///< room for work requests: asked for, then what there is
    verbs::async_listener* listener = nullptr;
    std::shared_ptr<verbs::domain> domain;
    std::unique_ptr<verbs::completion_queue> completions;  ///< of its own, where it has an owner of its own
    std::optional<verbs::queue_pair> queue_pair;           ///< from `open` to `close`; `direct`: from `prepare` on
    std::unique_ptr<devx_queue_pair> devx;                 ///< instead of both, in the kernels' memory
    proxy::answer_way answers;                             ///< of this connection, for the proxy
    device::detail::send_port port;                        ///< without its counters, which are the poster's

    [[nodiscard]] verbs::connected_queue& end() noexcept {
        if (devx) return *devx;
        return *queue_pair;
    }
    /// Where completions of its own go.
    [[nodiscard]] const mlx5::completion_queue_ref& own_completions() const noexcept {
        return devx ? devx->completions() : completions->located();
    }
};

/// Entries for all connections together.
struct queue_depths {
    std::uint32_t receives = 0;
    std::uint32_t sends = 0;
};

/// The queues of a GPU-resident service, or channel, as the host makes them: one of two engines. Kernels post
/// and take completions by its ports, and so does a thread of the host in a kernel's place.
class queue_set {
  public:
    virtual ~queue_set() = default;
    /// The room there is: less than asked for where the device has less.
    [[nodiscard]] virtual queue_depths depths() const noexcept = 0;
    [[nodiscard]] virtual device::detail::completion_port completion_port() const = 0;
    [[nodiscard]] virtual mlx5::shared_receive_queue_ref receives() const { return {}; }

    /// Where they lie, and why, for people; empty where there is no choice.
    [[nodiscard]] virtual std::string where() const { return {}; }
    /// The same for kernels.
    [[nodiscard]] virtual mlx5::queue_place place() const noexcept { return mlx5::queue_place::host; }

    // Control path, any thread; one thread at a time for each queue. `prepare` and `start` before kernels
    // run.
    /// Makes what a queue keeps for all of its connections. `memory` outlives it. `overloaded`: no room is
    /// left.
    [[nodiscard]] virtual result<void> prepare(session_queue& queue, kernel_memory& memory) = 0;
    /// The opposite of `prepare`. False: a driver does not return and may use the queue later, so everything of it
    /// stays where it is for good (`left_behind`).
    [[nodiscard]] virtual bool discard(session_queue& queue) noexcept = 0;
    /// A connection begins: afterwards it has a queue pair that can be connected.
    [[nodiscard]] virtual result<void> open(session_queue& queue) = 0;
    /// A connection ends. After success neither end reaches the other's memory, and the completion port has
    /// no further completions of its queue pair.
    [[nodiscard]] virtual result<void> close(session_queue& queue) = 0;

    // With kernels.
    /// Kernels may use what lies on the host, and the engine begins to work. After all are prepared.
    [[nodiscard]] virtual result<void> start(kernel_memory& with) = 0;
    /// Processor time that the engine has taken from the host.
    [[nodiscard]] virtual core::nanoseconds cpu_time() const { return {}; }

    /// When it returns, the engine has passed on what kernels had posted, and what had come for them. Does not wait for
    /// a driver that does not return.
    virtual void catch_up() noexcept {}
    /// Where the host and not kernels take completions, which are failures: tells the listeners of their queues.
    virtual void take_failures() noexcept {}

    // Without `start`: a thread of the host takes completions.
    /// Does what the engine does on a thread of its own after `start`. False: there was nothing to do.
    virtual bool progress() noexcept { return false; }
    /// The engine has failed for every connection. Only `progress` would notice otherwise.
    [[nodiscard]] virtual bool has_failed() const noexcept { return false; }
    /// Readable when there is a completion, provided that `arm` said true.
    [[nodiscard]] virtual int event_fd() const noexcept = 0;
    [[nodiscard]] virtual bool arm() noexcept = 0;
    virtual void disarm() noexcept = 0;
};

/// Maps the ring, the record and the doorbell of a send queue into the GPU.
[[nodiscard]] result<void> share_sends(kernel_memory& with, const mlx5::send_queue_ref& queue);

/// mlx5 queues, driven directly. All are made beforehand: mapping one into a GPU would wait for its kernels.
/// `listener` hears of a completion queue's overrun.
[[nodiscard]] result<std::unique_ptr<queue_set>> make_direct_queues(std::shared_ptr<verbs::device> on,
                                                                    const queue_depths& wanted,
                                                                    verbs::async_listener* listener);
/// The same for a service whose sessions have one owner each: a completion queue for each session, which has
/// nothing but failures and now and then a send, and no receives. Without ports for all. They lie where `wanted`
/// says; `unsupported`, with the reason: not there. `memory` outlives the set.
[[nodiscard]] result<std::unique_ptr<queue_set>> make_exclusive_queues(std::shared_ptr<verbs::device> on,
                                                                       queue_location wanted, kernel_memory& memory);
/// Rings in memory that kernels share, and the proxy, which posts by libibverbs what they put there. Kernels
/// touch no queue of the device, so queue pairs come and go with their connections. `by` says which thread it is.
/// `memory` outlives the set.
[[nodiscard]] result<std::unique_ptr<queue_set>> make_proxy_queues(std::shared_ptr<verbs::device> on,
                                                                   const queue_depths& wanted, kernel_memory& memory,
                                                                   const proxy_sharing& by = {},
                                                                   bool host_takes_failures = false);
/// One or the other, for a service. `invalid_argument`: the device has not as many entries.
[[nodiscard]] result<std::unique_ptr<queue_set>> make_queue_set(gpu_engine engine,
                                                                const std::shared_ptr<verbs::device>& on,
                                                                const service_sizes& sizes, kernel_memory& memory,
                                                                const proxy_sharing& by,
                                                                verbs::async_listener* listener);

}  // namespace accel::gpu
