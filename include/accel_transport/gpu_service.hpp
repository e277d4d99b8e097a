// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>
#include <accel_transport/context.hpp>
#include <accel_transport/device/detail/layout_version.hpp>
#include <accel_transport/gpu_options.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct CUstream_st;

namespace accel {

namespace device {
struct service_ref;
}

/// Counters of a GPU-resident service, as last reported by its kernels.
struct gpu_service_statistics {
    std::uint32_t sessions = 0;  ///< open now
    std::uint64_t sessions_opened = 0;
    std::uint64_t sessions_refused = 0;
    std::uint64_t sessions_lost = 0;
    std::uint64_t requests = 0;           ///< taken by the kernels
    std::uint64_t replies = 0;            ///< posted by the kernels
    std::uint64_t expired = 0;            ///< requests whose deadline had passed on arrival
    std::uint64_t dropped = 0;            ///< requests of clients that had disconnected or broke the protocol
    std::chrono::nanoseconds cpu_user{};  ///< of the service's one thread, which sleeps
    std::chrono::nanoseconds cpu_kernel{};
    std::chrono::nanoseconds cpu_proxy{};  ///< of the thread that posts for kernels (`gpu_engine::proxy`)
};

/// A GPU-resident service: the application's kernels take requests, compute, and post the responses to the adapter
/// themselves (device/service.hpp). No host thread takes part, except one that posts for the kernels if the GPU cannot
/// reach the adapter (`gpu_engine`). This class is the host's end: it opens and closes sessions. Clients are ordinary
/// channels, over `gpu`, `rdma` or `gdr`. Move-only; any thread may call its methods.
class ACCEL_API gpu_service {
  public:
    /// Options for `listen`, for a service that allocates all its slots in advance: 64 sessions of 8 slots with 1 MiB
    /// each way, as channels ask for by default, on cuda:0. Together: 1 GiB.
    [[nodiscard]] static gpu_service_options defaults();
    /// Listens on `gpu://host:port?key=value…`. Allocates what sessions and kernels will need, before any kernel runs:
    /// `max_sessions` × `max_slots` × (`max_request_bytes` + `max_response_bytes`) of GPU memory. With host `memory`,
    /// host threads may serve with the same functions. May block. `unsupported` names what is missing.
    [[nodiscard]] static result<gpu_service> listen(context& ctx, std::string_view uri,
                                                    const gpu_service_options& options = defaults()) {
        return open(ctx, uri, options, device::detail::layout_version);
    }
    gpu_service(gpu_service&&) noexcept;
    gpu_service& operator=(gpu_service&&) noexcept;
    /// As `stop()`: no kernel may use the service any more.
    ~gpu_service();

    /// The kernels' argument, passed by value. Valid until `stop` has returned. Clients may connect before the first
    /// kernel runs; their requests wait.
    [[nodiscard]] const device::service_ref& ref() const noexcept;
    /// Where the slots are and the kernels must run: from the options or the URI.
    [[nodiscard]] memory_kind memory() const noexcept;
    /// The endpoint for clients, with the real port, without keys and options.
    [[nodiscard]] std::string endpoint() const;
    /// `ok`, or `device_lost` within a second after a kernel's fault or the loss of the GPU. Clients then get
    /// `device_lost` too, and new clients are refused: only a new process can serve them.
    [[nodiscard]] status failure() const noexcept;
    [[nodiscard]] gpu_service_statistics statistics() const;
    /// The targets that the kernels serve; replaces the earlier list. Clients resolve the names; kernels compare
    /// `exchange_ref::target_number` with `target_of(name).number`, and fail other requests with `not_found`.
    /// `invalid_argument`: an invalid name, or too many names.
    [[nodiscard]] result<void> set_targets(const std::vector<std::string>& names);
    /// How the kernels reach the RDMA device, never `automatic`; and a sentence that says why.
    [[nodiscard]] gpu_engine engine() const noexcept;
    [[nodiscard]] const std::string& engine_reason() const noexcept;

    /// Asks all clients to begin no more calls here, and refuses new sessions (`overloaded`). From about now on `take`
    /// and `wait` return `closed`; requests that no kernel has taken end with `closed`. This cannot be undone. Does not
    /// wait.
    void request_stop() noexcept;
    /// Requests the stop, sleeps until all work given to `stream` has ended, then closes all sessions.
    /// `timed_out`: the work still runs, and no session was closed; call `stop` again.
    /// `device_lost`: a kernel has faulted; the service has stopped.
    /// `unsupported`: a kernel was compiled with other device headers than this library and was refused; a log line
    /// says so.
    status stop(CUstream_st* stream, std::chrono::nanoseconds timeout);
    /// The same when no kernel uses the service any more.
    void stop();

  private:
    friend struct core::internals;
    friend class gpu_graph;
    struct state;
    /// `layout`: version of the device headers that the program was compiled with.
    [[nodiscard]] static result<gpu_service> open(context& ctx, std::string_view uri,
                                                  const gpu_service_options& options, std::uint32_t layout);
    explicit gpu_service(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel
