#pragma once

#include "backends/gpu/connection.hpp"
#include "backends/gpu/kernel_memory.hpp"
#include "core/clock.hpp"

#include <accel_transport/device/detail/engine.hpp>
#include <accel_transport/device/detail/mlx5/receive_queue.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>

namespace accel::gpu {

/// The host's side of how kernels reach an RDMA device: one of two engines.
class service_queues {
  public:
    virtual ~service_queues() = default;

    // While the service is made, before its kernels run.
    /// What a place has for all of its sessions. Places come in order.
    [[nodiscard]] virtual result<void> prepare(connection& place) = 0;
    /// Kernels may use what lies on the host, and the engine begins to work. After all places.
    [[nodiscard]] virtual result<void> start(kernel_memory& with) = 0;
    /// As kernels have them; the counters are theirs.
    [[nodiscard]] virtual device::send_port send_port(const connection& place) const = 0;
    [[nodiscard]] virtual device::completion_port completion_port() const = 0;
    [[nodiscard]] virtual mlx5::shared_receive_queue_ref receives() const { return {}; }

    // Beside kernels, from any thread; one thread at a time for each place.
    /// A session comes: its place has a queue pair that can be connected.
    [[nodiscard]] virtual result<void> open(connection& place) = 0;
    /// It goes. When that has succeeded, neither end reaches the other's memory any more, and of the queue
    /// pair kernels hear no more than is already in their completion port.
    [[nodiscard]] virtual result<void> close(connection& place) = 0;

    /// Processor time that the engine has taken from the host.
    [[nodiscard]] virtual core::nanoseconds cpu_time() const { return {}; }
};

}  // namespace accel::gpu
