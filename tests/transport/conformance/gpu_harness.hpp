// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

/// The harness that runs the conformance suite over the device code. Its workers take requests and post
/// responses by the functions that kernels call (accel_transport/device/service.hpp), and call handlers.
namespace accel::tests {

/// The backend "gpu", but for servers with handlers, which are the harness's.
[[nodiscard]] std::unique_ptr<core::backend> make_harness_backend(core::context_state& context);

}  // namespace accel::tests
