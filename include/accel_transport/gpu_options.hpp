// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>

#include <cstdint>

namespace accel {

/// How the kernels of a service or channel reach their RDMA device.
enum class gpu_engine : std::uint8_t {
    automatic,  ///< URI `auto`: `direct` where possible, else `proxy`
    direct,     ///< kernels post to the device's own queues (mlx5), which the GPU must be able to map
    proxy,      ///< a host thread, which spins under load, posts for the kernels with libibverbs; any device
};

/// Which threads may serve a session of a `gpu_service`, or call through a `gpu_channel`.
enum class service_sharing : std::uint8_t {
    shared,     ///< any thread of any kernel, with locks that never block; keeps the GPU busy when load is uneven
    exclusive,  ///< owned: one thread, warp or block per session or channel, without locks; the lowest latency
};

/// Where the queues of a service or channel with `service_sharing::exclusive` are.
enum class queue_location : std::uint8_t {
    automatic,  ///< URI `auto`: `gpu` where the GPU's memory and the device allow it, else `host`
    host,
    gpu,  ///< in GPU memory, created through DevX (mlx5): messages do not wait for a round trip to the host
};

/// What kernels need beside the options of a server or channel. Each is also a URI key of the same name.
struct kernel_options {
    /// auto, direct or proxy. `direct=false` leaves only the proxy.
    gpu_engine engine = gpu_engine::automatic;
    /// Requests and responses are in pinned host memory, which kernels reach across PCIe. For short messages, and for
    /// adapters that cannot reach GPU memory.
    bool host_slots = false;
    /// shared or exclusive.
    service_sharing sharing = service_sharing::shared;
    /// auto, host or gpu; with `sharing=exclusive` only. `gpu` needs the engine `direct`.
    queue_location queues = queue_location::automatic;
    /// 1 to 64, with the engine `proxy` only. All services and channels of the context that set this option share these
    /// threads; the largest number counts. 0: a dedicated thread, with the lowest latency.
    std::uint32_t proxy_threads = 0;
};

/// Options of a `gpu_service`. A `server` ignores `kernels`.
struct gpu_service_options : server_options {
    kernel_options kernels{};
};

/// Options of a `gpu_channel`. A `channel` ignores `memory` and `kernels`.
struct gpu_channel_options : channel_options {
    memory_kind memory = memory_kind::cuda(0);  ///< of the slots; also a URI key
    kernel_options kernels{};
};

}  // namespace accel
