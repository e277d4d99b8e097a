// SPDX-License-Identifier: Apache-2.0
#include "kernels/queues/queue_set.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace accel::gpu {

result<void> share_sends(kernel_memory& with, const mlx5::send_queue_ref& queue) {
    /// The size of a doorbell.
    constexpr std::uint32_t doorbell_bytes = 8;
    auto ring = with.share(queue.ring, std::size_t{queue.wqebbs} * mlx5::wqebb_bytes);
    if (!ring) return ring;
    auto record = with.share(queue.doorbell_record, sizeof(mlx5::be32));
    if (!record) return record;
    return with.share_registers(queue.doorbell, doorbell_bytes);
}

result<std::unique_ptr<queue_set>> make_queue_set(gpu_engine engine, const std::shared_ptr<verbs::device>& on,
                                                  const service_sizes& sizes, kernel_memory& memory,
                                                  const proxy_sharing& by, verbs::async_listener* listener) {
    if (sizes.exclusive && engine == gpu_engine::direct) return make_exclusive_queues(on, sizes.queues, memory);
    const std::uint32_t sends =
        std::min({sizes.sends(), static_cast<std::uint32_t>(on->limits().max_qp_wr), proxy::max_entries});
    const queue_depths wanted{sizes.receives(), sizes.sessions * sends};
    auto made = engine == gpu_engine::direct ? make_direct_queues(on, wanted, listener)
                                             : make_proxy_queues(on, wanted, memory, by, sizes.exclusive);
    if (!made) return made;
    const queue_depths got = (*made)->depths();
    if (got.receives >= sizes.in_flight() && got.sends >= wanted.sends) return made;
    return error{status::invalid_argument, 0,
                 fmt::format("gpu: {} sessions of {} slots need more queues than {} has ({} receives, {} work "
                             "requests); ask for fewer",
                             sizes.sessions, sizes.slots, on->describe(), got.receives, got.sends)};
}

}  // namespace accel::gpu
