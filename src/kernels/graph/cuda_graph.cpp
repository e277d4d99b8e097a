// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph/cuda_graph.hpp"

#include "cuda/driver.hpp"
#include "cuda/failure.hpp"
#include "kernels/graph/early_launch.hpp"
#include "kernels/graph/graph_kernels.hpp"

#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace accel::gpu {
namespace {

result<void> checked(std::string_view what, cudaError_t code) {
    if (code == cudaSuccess) return {};
    return cuda::call_failed(what, code);
}

/// The error for work that cannot be recorded so, unless the GPU has failed.
error refused(std::string_view what, cudaError_t code) {
    error out = cuda::call_failed(what, code);
    if (out.code == status::system_error) out.code = status::invalid_argument;
    return out;
}

}  // namespace

result<std::unique_ptr<recorded_graph>> cuda_graph::record(int ordinal, const accel::device::service_ref& service,
                                                           const accel::device::detail::graph_memory& memory,
                                                           const graph_work& work) {
    const cuda::current_device current(ordinal);
    if (current.code() != cudaSuccess) return cuda::call_failed("no such GPU", current.code());
    std::unique_ptr<cuda_graph> made(new cuda_graph(ordinal));
    const auto code = cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking);
    if (code != cudaSuccess) return cuda::call_failed("cannot make a CUDA stream", code);
    if (auto captured = made->capture(service, memory, work); !captured) return captured.error();
    if (auto ready = made->instantiate(waiting_kernel(memory)); !ready) return ready.error();
    return std::unique_ptr<recorded_graph>(std::move(made));
}

cuda_graph::~cuda_graph() {
    const cuda::current_device current(ordinal_);
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    if (ready_ != nullptr) (void)cudaGraphExecDestroy(ready_);
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

/// Other threads may allocate meanwhile, and so may `work`, where it has to.
result<void> cuda_graph::capture(const accel::device::service_ref& service,
                                 const accel::device::detail::graph_memory& memory, const graph_work& work) {
    const auto code = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
    if (code != cudaSuccess) return cuda::call_failed("the recording cannot begin", code);
    result<void> filled = fill(service, memory, work);
    const auto ended = cudaStreamEndCapture(stream_, &graph_);
    if (!filled) return filled;
    if (ended != cudaSuccess) return refused("the recording is not a graph", ended);
    return checked("a graph's nodes cannot be counted", cudaGraphGetNodes(graph_, nullptr, &nodes_));
}

result<void> cuda_graph::fill(const accel::device::service_ref& service,
                              const accel::device::detail::graph_memory& memory, const graph_work& work) {
    const auto begun = begin_iteration(stream_, service, memory);
    if (begun != cudaSuccess) return cuda::call_failed("the start of an iteration cannot be recorded", begun);
    if (auto worked = work(stream_); !worked) return worked;
    const auto ended = end_iteration(stream_, service, memory);
    return checked("the end of an iteration cannot be recorded", static_cast<cudaError_t>(ended));
}

/// `waits`: the kernel whose node may be launched early, or null. Not every driver launches such a graph from the GPU.
result<void> cuda_graph::instantiate(const void* waits) {
    const bool early = waits != nullptr && early_launch_works() && launch_early(graph_, waits);
    auto code = cudaGraphInstantiate(&ready_, graph_, cudaGraphInstantiateFlagDeviceLaunch);
    if (code != cudaSuccess && early) {
        (void)cudaGetLastError();
        launch_late(graph_, waits);
        code = cudaGraphInstantiate(&ready_, graph_, cudaGraphInstantiateFlagDeviceLaunch);
    }
    if (code != cudaSuccess)
        return refused("a service's graph may only have kernels, copies and memsets on the service's GPU", code);
    code = cudaGraphUpload(ready_, stream_);
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
    return checked("the graph cannot be uploaded to the GPU", code);
}

result<void> cuda_graph::start() {
    const cuda::current_device current(ordinal_);
    return checked("the graph cannot be started", cudaGraphLaunch(ready_, stream_));
}

result<std::unique_ptr<recorded_graph>> record_cuda_graph(int ordinal, const device::service_ref& service,
                                                          const device::detail::graph_memory& memory,
                                                          const graph_work& work) {
    return cuda_graph::record(ordinal, service, memory, work);
}

}  // namespace accel::gpu
