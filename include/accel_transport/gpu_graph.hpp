// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/gpu_service.hpp>
#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

struct CUstream_st;

namespace accel {

namespace device {
struct graph_iteration;
}

/// Options of a service of recorded kernels.
struct gpu_graph_options {
    std::uint32_t batch = 1;  ///< requests of one iteration, at most; as many as are ready then
    /// Each request has exactly so many bytes, and is copied to `graph_iteration::input`; others fail with
    /// `invalid_argument`. 0: requests of any length are read in place.
    std::size_t input_bytes = 0;
    /// Responses are copied from `graph_iteration::output`, and have so many bytes unless kernels say less.
    /// 0: they are written in place, and kernels say how long they are.
    std::size_t output_bytes = 0;
    /// Recordings that run beside each other, each with memory and a stream of its own.
    std::uint32_t instances = 1;
};

/// Where the time of an iteration goes, by the GPU's clock. Means; together they are
/// `gpu_graph_statistics::mean`.
struct gpu_iteration_stages {
    std::chrono::nanoseconds waiting{};   ///< from its first request's arrival until all are taken
    std::chrono::nanoseconds copy_in{};   ///< requests to `graph_iteration::input`
    std::chrono::nanoseconds work{};      ///< what the application recorded, and launches within the graph
    std::chrono::nanoseconds copy_out{};  ///< responses from `graph_iteration::output`
    std::chrono::nanoseconds answer{};    ///< until its last response is posted
};

/// Counters of a service of recorded kernels. Those of iterations are known once `stop` has returned ok.
struct gpu_graph_statistics {
    std::size_t nodes = 0;            ///< of one recording: the application's and the library's
    std::uint32_t running = 0;        ///< recordings that have not ended
    std::uint64_t iterations = 0;     ///< that had requests
    std::uint64_t requests = 0;       ///< of these iterations
    std::chrono::nanoseconds mean{};  ///< of an iteration, from its first request's arrival to its last response posted
    std::chrono::nanoseconds min{};   ///< likewise
    gpu_iteration_stages stages;      ///< of `mean`
    std::chrono::nanoseconds p50{};   ///< as `mean`: half of the iterations took no longer, to 1/64
    std::chrono::nanoseconds p99{};   ///< likewise 99 of 100
};

/// A service made of work that is recorded once, as a CUDA graph, and then runs again and again on the GPU by
/// itself: wait for requests, the recorded kernels, send the responses, and on to the next iteration. For
/// kernels that know nothing of requests, a library's for example. No thread of the host takes part.
/// Move-only; its methods may be called from any thread. It goes before its `gpu_service` does.
class ACCEL_API gpu_graph {
  public:
    /// Gives the work of one iteration to the stream: kernels, copies and memsets within the GPU, nothing
    /// that waits or allocates. It is called once for each instance, before any of them runs, and what it
    /// uses has to stay until they have ended. Work for fewer requests than `batch` is recorded as for all.
    using recorder = std::function<result<void>(CUstream_st* stream, const device::graph_iteration& iteration)>;

    /// Records and starts. `service` has its memory on a GPU. `invalid_argument`, `unsupported`: what was
    /// recorded, or this driver, will not do; the sentence says why. `invalid_state`: the sessions of the service have
    /// one owner each, and another graph owns them. May block.
    [[nodiscard]] static result<gpu_graph> start(gpu_service& service, const gpu_graph_options& options,
                                                 const recorder& record);
    gpu_graph(gpu_graph&&) noexcept;
    gpu_graph& operator=(gpu_graph&&) noexcept;
    /// As `stop`, and waits as long as it takes.
    ~gpu_graph();

    [[nodiscard]] gpu_graph_statistics statistics() const;
    /// Requests the service's stop and sleeps until all recordings have ended, each with its last iteration.
    /// `timed_out`: some still run; call it again. `device_lost`: the GPU has failed.
    status stop(std::chrono::nanoseconds timeout);

  private:
    struct state;
    explicit gpu_graph(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel
