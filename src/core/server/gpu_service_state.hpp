// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/server_core.hpp"

#include <accel_transport/gpu_service.hpp>

#include <memory>
#include <mutex>
#include <optional>

namespace accel {

struct gpu_service::state {
    [[nodiscard]] bool inherited() const noexcept { return core->inherited(); }

    std::shared_ptr<core::server_core> core;
    core::kernel_engine engine;
    std::mutex mutex;
    std::optional<gpu_service_statistics> last;  ///< once it has ended
    bool refused = false;                        ///< … kernels of another version
    std::weak_ptr<const void> graph;             ///< that owns the sessions (`service_sharing::exclusive`)
};

}  // namespace accel
