// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::gpu {

/// The `gpu` scheme: on the wire as `rdma`. Kernels take the requests of a `gpu_service` and post its
/// responses, or make the calls of a `gpu_channel`. `rdma` serves any other client, and a server with a handler.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context,
                                                          std::unique_ptr<core::backend> rdma);

}  // namespace accel::gpu
