// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/backend.hpp"

#include "verbs/rdma_backend.hpp"

namespace accel::rdma {

std::unique_ptr<core::backend> make_backend(core::context_state& context) {
    return verbs::make_rdma_backend(context, {.name = "rdma", .fills_gpus = false});
}

}  // namespace accel::rdma
