// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/accelerator.hpp"

#include <accel_transport/device/detail/graph/steps.hpp>

#include <functional>
#include <memory>

struct CUgraph_st;
struct CUgraphExec_st;

namespace accel::cuda {

/// A CUDA graph that begins itself anew on the GPU.
class recorded_graph final : public core::recorded_graph {
  public:
    using recorder = std::function<result<void>(CUstream_st*)>;
    [[nodiscard]] static result<std::unique_ptr<core::recorded_graph>> record(
        int ordinal, const accel::device::service_ref& service, const accel::device::detail::graph_memory& memory,
        const recorder& work);
    ~recorded_graph() override;
    recorded_graph(const recorded_graph&) = delete;
    recorded_graph& operator=(const recorded_graph&) = delete;

    [[nodiscard]] CUstream_st* native() const noexcept override { return stream_; }
    [[nodiscard]] std::size_t nodes() const noexcept override { return nodes_; }
    [[nodiscard]] result<void> start() override;

  private:
    explicit recorded_graph(int ordinal) noexcept : ordinal_(ordinal) {}
    [[nodiscard]] result<void> capture(const accel::device::service_ref& service,
                                       const accel::device::detail::graph_memory& memory, const recorder& work);
    [[nodiscard]] result<void> fill(const accel::device::service_ref& service,
                                    const accel::device::detail::graph_memory& memory, const recorder& work);
    [[nodiscard]] result<void> instantiate(const void* waits);

    int ordinal_;
    CUstream_st* stream_ = nullptr;
    CUgraph_st* graph_ = nullptr;
    CUgraphExec_st* ready_ = nullptr;
    std::size_t nodes_ = 0;
};

}  // namespace accel::cuda
