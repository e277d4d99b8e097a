// SPDX-License-Identifier: Apache-2.0
#include "backends/gdr/backend.hpp"

#include "verbs/rdma_backend.hpp"

namespace accel::gdr {

std::unique_ptr<core::backend> make_backend(core::context_state& context) {
    return verbs::make_rdma_backend(context, {.name = "gdr", .fills_gpus = true});
}

}  // namespace accel::gdr
