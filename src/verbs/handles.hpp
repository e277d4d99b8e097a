// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <infiniband/verbs.h>

/// Owners of libibverbs' objects: each destroys its object when it ends. What depends on another object has
/// to end before it.
namespace accel::verbs {

template <auto Destroy>
struct destroyer {
    template <class Object>
    void operator()(Object* object) const noexcept {
        (void)Destroy(object);
    }
};

using context_handle = std::unique_ptr<ibv_context, destroyer<&ibv_close_device>>;
using domain_handle = std::unique_ptr<ibv_pd, destroyer<&ibv_dealloc_pd>>;
using region_handle = std::unique_ptr<ibv_mr, destroyer<&ibv_dereg_mr>>;
using channel_handle = std::unique_ptr<ibv_comp_channel, destroyer<&ibv_destroy_comp_channel>>;
using cq_handle = std::unique_ptr<ibv_cq, destroyer<&ibv_destroy_cq>>;
using srq_handle = std::unique_ptr<ibv_srq, destroyer<&ibv_destroy_srq>>;
using qp_handle = std::unique_ptr<ibv_qp, destroyer<&ibv_destroy_qp>>;

}  // namespace accel::verbs
