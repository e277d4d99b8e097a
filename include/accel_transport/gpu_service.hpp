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
    std::uint64_t expired = 0;            ///< too late on arrival
    std::uint64_t dropped = 0;            ///< of clients that were gone, or broke the protocol
    std::chrono::nanoseconds cpu_user{};  ///< of the service's one thread, which sleeps
    std::chrono::nanoseconds cpu_kernel{};
    std::chrono::nanoseconds cpu_proxy{};  ///< of the thread that posts for kernels, `gpu_engine::proxy`
};

/// A GPU-resident service: kernels of the application take requests, compute and post the responses
/// to the adapter themselves (device/service.hpp), and no thread of the host takes part; or, where a GPU
/// cannot reach the adapter, one that posts for them (`gpu_engine`). This is the host's end: it lets clients
/// in and out. Clients are ordinary channels, over `gpu`, `rdma` or `gdr`.
/// Move-only; its methods may be called from any thread.
class ACCEL_API gpu_service {
  public:
    /// Options for `listen`, sized for a service whose slots are all made beforehand: 64 sessions of 8 slots
    /// with 1 MiB each way, as channels ask for by default, on cuda:0: 1 GiB.
    [[nodiscard]] static gpu_service_options defaults();
    /// Listens on `gpu://host:port?key=value…`. Makes everything that sessions and kernels will need, before
    /// any kernel runs: `max_sessions` × `max_slots` × (`max_request_bytes` + `max_response_bytes`) of GPU
    /// memory. With `memory` of the host, threads of the host may serve with the same functions.
    /// `unsupported` names what is missing. May block.
    [[nodiscard]] static result<gpu_service> listen(context& ctx, std::string_view uri,
                                                    const gpu_service_options& options = defaults()) {
        return open(ctx, uri, options, device::detail::layout_version);
    }
    gpu_service(gpu_service&&) noexcept;
    gpu_service& operator=(gpu_service&&) noexcept;
    /// As `stop()`: no kernel may be using it any more.
    ~gpu_service();

    /// The argument of the kernels, by value. Good until `stop` has returned. Clients may connect before the
    /// first kernel runs; their requests wait for it.
    [[nodiscard]] const device::service_ref& ref() const noexcept;
    /// Where its slots are and its kernels have to run: of the options or the URI.
    [[nodiscard]] memory_kind memory() const noexcept;
    /// The endpoint for clients, with the real port; without keys and options.
    [[nodiscard]] std::string endpoint() const;
    /// `ok`; `device_lost` within a second of a kernel's fault or of the GPU's end. Clients get the same then, and new
    /// ones are refused: only a new process can serve them.
    [[nodiscard]] status failure() const noexcept;
    [[nodiscard]] gpu_service_statistics statistics() const;
    /// The names that its kernels serve, in place of those told before. Clients resolve them; kernels compare
    /// `exchange_ref::target_number` with `target_of(name).number`, and fail others with `not_found`.
    /// `invalid_argument`: no name is like one of these, or there are too many.
    [[nodiscard]] result<void> set_targets(const std::vector<std::string>& names);
    /// How its kernels reach the RDMA device, never `automatic`, and a sentence that says why.
    [[nodiscard]] gpu_engine engine() const noexcept;
    [[nodiscard]] const std::string& engine_reason() const noexcept;

    /// Tells all clients to begin no more calls here, and refuses new sessions (`overloaded`). `take` and `wait` say
    /// `closed` from about now on. Requests that no kernel has taken then end as `closed`. This cannot be undone. Does
    /// not wait.
    void request_stop() noexcept;
    /// Requests the stop and sleeps until everything that was given to `stream` has ended; then ends all sessions.
    /// `timed_out`: it still runs, and no session has been ended; call it again. `device_lost`: a kernel has faulted;
    /// all has ended. `unsupported`: a kernel was compiled with other device headers than this library, and was
    /// refused; a line of the log says so.
    status stop(CUstream_st* stream, std::chrono::nanoseconds timeout);
    /// The same where no kernel uses the service any more.
    void stop();

  private:
    friend struct core::internals;
    friend class gpu_graph;
    struct state;
    /// `layout`: of the device headers that the program was compiled with.
    [[nodiscard]] static result<gpu_service> open(context& ctx, std::string_view uri,
                                                  const gpu_service_options& options, std::uint32_t layout);
    explicit gpu_service(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel
