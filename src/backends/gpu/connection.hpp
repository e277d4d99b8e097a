#pragma once

#include "verbs/async_events.hpp"
#include "verbs/domain.hpp"
#include "verbs/handles.hpp"
#include "verbs/queue_pair.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace accel::gpu {

/// The place of one session after another: slots that were registered before the kernels run, and a queue
/// pair of its engine's making.
struct connection final : public verbs::async_listener {
    connection(std::uint32_t number, int wake) noexcept : index(number), wake_fd(wake) {}
    void on_async_event(ibv_event_type type) noexcept override;

    std::uint32_t index;
    std::shared_ptr<verbs::domain> domain;
    std::optional<verbs::queue_pair> queue_pair;  ///< while there is a session; `direct`: always
    verbs::region_handle requests;
    verbs::region_handle responses;
    std::atomic<bool> failed{false};
    int wake_fd;
};

}  // namespace accel::gpu
