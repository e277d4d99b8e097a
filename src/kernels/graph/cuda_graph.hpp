// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/graph/recorded_graph.hpp"

#include <accel_transport/device/detail/graph/steps.hpp>

#include <functional>
#include <memory>

struct CUgraph_st;
struct CUgraphExec_st;

namespace accel::gpu {

/// A CUDA graph that begins itself anew on the GPU.
class cuda_graph final : public recorded_graph {
  public:
    [[nodiscard]] static result<std::unique_ptr<recorded_graph>> record(
        int ordinal, const accel::device::service_ref& service, const accel::device::detail::graph_memory& memory,
        const graph_work& work);
    ~cuda_graph() override;
    cuda_graph(const cuda_graph&) = delete;
    cuda_graph& operator=(const cuda_graph&) = delete;

    [[nodiscard]] CUstream_st* native() const noexcept override { return stream_; }
    [[nodiscard]] std::size_t nodes() const noexcept override { return nodes_; }
    [[nodiscard]] result<void> start() override;

  private:
    explicit cuda_graph(int ordinal) noexcept : ordinal_(ordinal) {}
    [[nodiscard]] result<void> capture(const accel::device::service_ref& service,
                                       const accel::device::detail::graph_memory& memory, const graph_work& work);
    [[nodiscard]] result<void> fill(const accel::device::service_ref& service,
                                    const accel::device::detail::graph_memory& memory, const graph_work& work);
    [[nodiscard]] result<void> instantiate(const void* waits);

    int ordinal_;
    CUstream_st* stream_ = nullptr;
    CUgraph_st* graph_ = nullptr;
    CUgraphExec_st* ready_ = nullptr;
    std::size_t nodes_ = 0;
};

}  // namespace accel::gpu
