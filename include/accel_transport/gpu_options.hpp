// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/memory.hpp>
#include <accel_transport/options.hpp>

#include <cstdint>

namespace accel {

/// How kernels, of a service or a channel, reach their RDMA device.
enum class gpu_engine : std::uint8_t {
    automatic,  ///< URI `auto`: `direct` where it works, else `proxy`
    direct,     ///< its kernels post to the device's own queues (mlx5), which the GPU has to map
    proxy,      ///< a thread of the host, which spins under load, posts for them by libibverbs; any device
};

/// The threads that serve a session of a `gpu_service`, or call through a `gpu_channel`.
enum class service_sharing : std::uint8_t {
    shared,     ///< any thread of any kernel, with locks that nobody waits for; keeps the GPU busy when load is uneven
    exclusive,  ///< one thread, warp or block for each session or channel, without locks: the quickest turn
};

/// Where the queues of a service or channel with `service_sharing::exclusive` lie.
enum class queue_location : std::uint8_t {
    automatic,  ///< URI `auto`: `gpu` where the GPU's memory and the device allow it, else `host`
    host,
    gpu,  ///< in the kernels' memory, made by DevX (mlx5): a message waits for no way to the host
};

/// What kernels need beside the options of a server or channel. Each is also a URI key of the same name.
struct kernel_options {
    /// auto, direct or proxy. `direct=false` leaves only the proxy.
    gpu_engine engine = gpu_engine::automatic;
    /// Requests and responses lie in pinned memory of the host, and kernels reach them across PCIe. For short messages,
    /// and where the adapter does not reach the GPU's memory.
    bool host_slots = false;
    /// shared or exclusive.
    service_sharing sharing = service_sharing::shared;
    /// With `sharing=exclusive` only: auto, host or gpu, which needs the engine `direct`.
    queue_location queues = queue_location::automatic;
    /// With the engine `proxy`: 1 to 64 threads, which all services and channels of the context that ask for them
    /// share; the largest number holds. 0: a thread of its own, which answers soonest.
    std::uint32_t proxy_threads = 0;
};

/// Options of a `gpu_service`.
struct gpu_service_options : server_options {
    kernel_options kernels{};
};

/// Options of a `gpu_channel`.
struct gpu_channel_options : channel_options {
    memory_kind memory = memory_kind::cuda(0);  ///< of the slots; also a URI key
    kernel_options kernels{};
};

}  // namespace accel
