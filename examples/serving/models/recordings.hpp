// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/gpu_memory.hpp"
#include "serving/models/model.hpp"

#include <accel_transport/device/graph.hpp>

#include <mutex>
#include <vector>

namespace accel::examples::serving {

/// Gives a model's work to the streams of GPU-resident services, and keeps the memory between preprocessing and
/// inference, which belongs to one recording each. Any thread; goes after the services.
class recordings {
  public:
    /// Requests of `iteration.input_bytes` are raw images or the table's inputs; `invalid_argument` for any other
    /// size, and for answers that are not the table's.
    [[nodiscard]] result<void> record(model& what, CUstream_st* stream, const device::graph_iteration& iteration);

  private:
    /// Makes the inputs out of the images, and says where they are.
    [[nodiscard]] result<std::byte*> preprocess(model& what, CUstream_st* stream,
                                                const device::graph_iteration& iteration);

    std::mutex mutex_;
    std::vector<gpu_memory> between_;
};

}  // namespace accel::examples::serving
