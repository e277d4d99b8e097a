// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph/recorded_graph.hpp"

namespace accel::gpu {

result<std::unique_ptr<recorded_graph>> record_on(core::accelerator_device& gpu, const device::service_ref& service,
                                                  const device::detail::graph_memory& memory, const graph_work& work) {
    if (auto* const own = dynamic_cast<graph_recorder*>(&gpu); own != nullptr)
        return own->record(service, memory, work);
    return record_cuda_graph(gpu.kind().ordinal, service, memory, work);
}

}  // namespace accel::gpu
