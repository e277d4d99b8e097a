// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/queues/queue_set.hpp"
#include "verbs/async_events.hpp"
#include "verbs/handles.hpp"

#include <atomic>
#include <cstdint>

namespace accel::gpu {

/// The place of one session after another: slots that were registered before the kernels run, and a queue
/// pair of its engine's making.
struct connection final : public session_queue, public verbs::async_listener {
    connection(std::uint32_t number, int wake) noexcept : wake_fd(wake) {
        index = number;
        listener = this;
    }
    void on_async_event(ibv_event_type type) noexcept override;

    verbs::region_handle requests;
    verbs::region_handle responses;
    std::atomic<bool> failed{false};
    int wake_fd;
};

}  // namespace accel::gpu
