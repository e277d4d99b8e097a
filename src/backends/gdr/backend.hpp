// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>

namespace accel::core {
class context_state;
}

namespace accel::gdr {

/// The `gdr` scheme: as `rdma`, but a server's payloads lie in the memory of a GPU, where the RDMA device
/// writes and reads them (GPUDirect RDMA). The headers stay on the host, and the CPU posts.
[[nodiscard]] std::unique_ptr<core::backend> make_backend(core::context_state& context);

}  // namespace accel::gdr
