// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <functional>
#include <memory>

struct CUstream_st;

namespace accel::device {
struct service_ref;
namespace detail {
struct graph_memory;
}
}  // namespace accel::device

namespace accel::gpu {

/// Work that is recorded once and then runs in iterations: gather requests, work, send responses.
class recorded_graph {
  public:
    /// After the last iteration.
    virtual ~recorded_graph() = default;
    [[nodiscard]] virtual CUstream_st* native() const noexcept = 0;
    [[nodiscard]] virtual std::size_t nodes() const noexcept = 0;
    /// Starts the first iteration, once. The iteration in which the service stops is the last.
    [[nodiscard]] virtual result<void> start() = 0;
};

/// Gives work to a stream, which records it.
using graph_work = std::function<result<void>(CUstream_st*)>;

/// A device that records by itself: a stand-in for a GPU.
class graph_recorder {
  public:
    virtual ~graph_recorder() = default;
    [[nodiscard]] virtual result<std::unique_ptr<recorded_graph>> record(const device::service_ref& service,
                                                                         const device::detail::graph_memory& memory,
                                                                         const graph_work& work) = 0;
};

/// Records what `work` gives to a stream, between the library's own steps for `memory`'s iterations: as a CUDA graph,
/// unless the device records by itself.
[[nodiscard]] result<std::unique_ptr<recorded_graph>> record_on(core::accelerator_device& gpu,
                                                                const device::service_ref& service,
                                                                const device::detail::graph_memory& memory,
                                                                const graph_work& work);

/// The same as a CUDA graph. `unsupported`: this build has no CUDA.
[[nodiscard]] result<std::unique_ptr<recorded_graph>> record_cuda_graph(int ordinal, const device::service_ref& service,
                                                                        const device::detail::graph_memory& memory,
                                                                        const graph_work& work);

}  // namespace accel::gpu
