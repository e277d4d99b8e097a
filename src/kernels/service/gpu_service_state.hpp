// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/server_core.hpp"
#include "kernels/kernel_host.hpp"
#include "kernels/service/service_sessions.hpp"

#include <accel_transport/gpu_service.hpp>

#include <memory>
#include <mutex>
#include <optional>

namespace accel {
namespace gpu {

/// A server whose requests kernels take.
struct service_server {
    [[nodiscard]] bool inherited() const noexcept { return core->inherited(); }
    [[nodiscard]] kernel_service& kernels() const noexcept { return sessions->kernels(); }
    /// Tells clients that it drains, and asks kernels to end.
    void stop_kernels() const noexcept {
        core->tell_draining();
        kernels().request_stop();
    }

    std::shared_ptr<core::server_core> core;
    const service_sessions* sessions = nullptr;  ///< of `core`
};

}  // namespace gpu

struct gpu_service::state : gpu::service_server {
    gpu::kernel_engine engine;
    std::mutex mutex;
    std::optional<gpu_service_statistics> last;  ///< once it has ended
    bool refused = false;                        ///< … kernels of another version
    std::weak_ptr<const void> graph;             ///< that owns the sessions (`service_sharing::exclusive`)
};

}  // namespace accel
