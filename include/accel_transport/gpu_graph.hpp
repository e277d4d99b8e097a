// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/function.hpp>
#include <accel_transport/gpu_service.hpp>
#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

struct CUstream_st;

namespace accel {

namespace device {
struct graph_iteration;
}

/// Options of a service made of recorded kernels.
struct gpu_graph_options {
    std::uint32_t batch = 1;  ///< most requests per iteration; each iteration takes those that are ready
    /// Requests have exactly this size and are copied to `graph_iteration::input`; other sizes fail with
    /// `invalid_argument`. 0: requests of any size are read in place.
    std::size_t input_bytes = 0;
    /// Responses are copied from `graph_iteration::output` and have this size unless kernels set a smaller one.
    /// 0: kernels write responses in place and set their sizes.
    std::size_t output_bytes = 0;
    /// Recordings that run concurrently, each with its own memory and stream.
    std::uint32_t instances = 1;
};

/// Mean duration of each stage of an iteration, on the GPU's clock. The stages add up to `gpu_graph_statistics::mean`.
struct gpu_iteration_stages {
    std::chrono::nanoseconds waiting{};   ///< from the first request's arrival until all requests are taken
    std::chrono::nanoseconds copy_in{};   ///< copies of requests to `graph_iteration::input`
    std::chrono::nanoseconds work{};      ///< the recorded work, and launches within the graph
    std::chrono::nanoseconds copy_out{};  ///< copies of responses from `graph_iteration::output`
    std::chrono::nanoseconds answer{};    ///< until the last response is posted
};

/// Counters of a service made of recorded kernels. The figures of iterations are set once `stop` has returned ok.
struct gpu_graph_statistics {
    std::size_t nodes = 0;            ///< of one recording: the application's and the library's
    std::uint32_t running = 0;        ///< recordings that have not ended
    std::uint64_t iterations = 0;     ///< iterations with at least one request
    std::uint64_t requests = 0;       ///< in these iterations
    std::chrono::nanoseconds mean{};  ///< per iteration: first request's arrival until last response posted
    std::chrono::nanoseconds min{};   ///< likewise
    gpu_iteration_stages stages;      ///< of `mean`
    std::chrono::nanoseconds p50{};   ///< likewise, the median, accurate to 1/64
    std::chrono::nanoseconds p99{};   ///< likewise, the 99th percentile
};

/// A service made of work that is recorded once, as a CUDA graph, and then runs repeatedly on the GPU without the host.
/// Each iteration waits for requests, runs the recorded kernels and sends the responses. For kernels that know nothing
/// of requests, such as a library's. No host thread takes part. Move-only; any thread may call its methods. Must be
/// destroyed before its `gpu_service`.
class ACCEL_API gpu_graph {
  public:
    /// Puts the work of one iteration on the stream: kernels, copies and memsets within the GPU, nothing that waits or
    /// allocates. Called once per instance, before any instance runs. What the work uses must stay valid until all
    /// instances have ended. The recording is the same for fewer requests than `batch`.
    using recorder = shared_function<result<void>(CUstream_st* stream, const device::graph_iteration& iteration)>;

    /// Records and starts. The memory of `service` must be on a GPU. May block.
    /// `invalid_argument`, `unsupported`: the recorded work or this driver is not suitable; the message says why.
    /// `invalid_state`: the sessions of the service are owned, by another graph.
    [[nodiscard]] static result<gpu_graph> start(gpu_service& service, const gpu_graph_options& options,
                                                 const recorder& record);
    gpu_graph(gpu_graph&&) noexcept;
    gpu_graph& operator=(gpu_graph&&) noexcept;
    /// As `stop`, without a time limit.
    ~gpu_graph();

    [[nodiscard]] gpu_graph_statistics statistics() const;
    /// Requests the service's stop and sleeps until all recordings have ended, each after its last iteration.
    /// `timed_out`: some recordings still run; call `stop` again.
    /// `device_lost`: the GPU has failed.
    status stop(std::chrono::nanoseconds timeout);

  private:
    struct state;
    explicit gpu_graph(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel
