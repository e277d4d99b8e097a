// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch/torch_model.hpp"

#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/server.hpp>

namespace accel::examples::vision {

/// A handler on the host that gives the network to each request's stream: its kernels one by one, or with
/// `replays` as one CUDA graph. The model must outlive the server.
[[nodiscard]] handler handler_of(torch_model& model, bool replays);

/// The same, recorded for a GPU-resident service.
[[nodiscard]] gpu_graph::recorder recorder_of(torch_model& model);

}  // namespace accel::examples::vision
