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

struct CUstream_st;

namespace accel {

namespace device {
struct channel_ref;
}

/// Counters of a GPU-resident channel, as last reported by its kernels; complete once the channel is closed.
struct gpu_channel_statistics {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;    ///< answered by the server, with any status
    std::uint64_t ended_early = 0;  ///< timed out, cancelled, or ended with the session
    std::uint64_t stale = 0;        ///< late responses, of calls that had already ended
    std::uint32_t quarantined = 0;  ///< slots that wait for a late response now
};

/// Why a GPU-resident channel was lost.
struct gpu_channel_failure {
    status reason = status::ok;  ///< ok while connected; `peer_lost`, `protocol_error` …; `closed`, also while the
                                 ///< server drains; `device_lost`: a kernel has faulted, here or at the server;
                                 ///< `unsupported`: a kernel was compiled with other device headers and was refused
    std::uint8_t syndrome = 0;   ///< the adapter's number for the first failed work request; 0: none
};

/// A channel whose calls come from kernels: they write requests, post them to the adapter and read responses themselves
/// (device/client.hpp). No host thread takes part in a call, except one that posts for the kernels if the GPU cannot
/// reach the adapter (`gpu_engine`). This class is the host's end: it connects, keeps the session alive and closes it.
/// The server may be any server on `gpu`, `rdma` or `gdr`. When the server drains, kernels begin no more calls and take
/// the answers of those in flight. A lost channel stays lost; connect a new one. Move-only; any thread may call its
/// methods.
class ACCEL_API gpu_channel {
  public:
    /// Connects to `gpu://host:port?key=value…` within `connect_timeout`. Allocates what kernels will need, before any
    /// kernel runs: `slots` × (`request_bytes` + `response_bytes`) of GPU memory. With host `memory`, host threads may
    /// call with the same functions. May block. `unsupported` names what is missing.
    [[nodiscard]] static result<gpu_channel> connect(context& ctx, std::string_view uri,
                                                     const gpu_channel_options& options = {}) {
        return open(ctx, uri, options, device::detail::layout_version);
    }
    gpu_channel(gpu_channel&&) noexcept;
    gpu_channel& operator=(gpu_channel&&) noexcept;
    /// As `close()`: no kernel may use the channel any more. Frees GPU memory, which waits for all kernels of that GPU,
    /// including a service's: stop the service first.
    ~gpu_channel();

    /// The kernels' argument, passed by value. Valid until `close` has returned.
    [[nodiscard]] const device::channel_ref& ref() const noexcept;
    /// Where the slots are and the kernels must run: from the options or the URI.
    [[nodiscard]] memory_kind memory() const noexcept;
    [[nodiscard]] std::size_t max_request_bytes() const noexcept;
    [[nodiscard]] std::size_t max_response_bytes() const noexcept;
    [[nodiscard]] std::uint32_t slots() const noexcept;
    /// As `channel::resolve`; kernels pass the number in `call_options::target`.
    [[nodiscard]] result<target> resolve(std::string_view name);
    /// How the kernels reach the adapter, never `automatic`.
    [[nodiscard]] gpu_engine engine() const noexcept;
    /// Why: a sentence that names the device and the GPU. For an owned channel also where the queues are, and why.
    [[nodiscard]] const std::string& engine_reason() const noexcept;
    /// Which threads may call: from the options or the URI. Kernels written for an owner (`device::own`) work with
    /// either.
    [[nodiscard]] service_sharing sharing() const noexcept;
    /// False within 50 ms after the session was lost, and while the server drains.
    [[nodiscard]] bool connected() const noexcept { return failure().reason == status::ok; }
    /// May be called while kernels run.
    [[nodiscard]] gpu_channel_failure failure() const noexcept;
    [[nodiscard]] gpu_channel_statistics statistics() const;

    /// From about now on `begin` returns `closed`, and calls in flight end with `closed`. Does not wait.
    void request_stop() noexcept;
    /// Requests the stop, sleeps until all work given to `stream` has ended, then closes the session.
    /// `timed_out`: the work still runs, and nothing was closed; call `close` again.
    /// `device_lost`: a kernel has faulted here; the channel is closed.
    /// `unsupported`: as in `gpu_channel_failure`.
    status close(CUstream_st* stream, std::chrono::nanoseconds timeout);
    /// The same when no kernel uses the channel any more.
    void close();

  private:
    friend struct core::internals;
    struct state;
    /// `layout`: version of the device headers that the program was compiled with.
    [[nodiscard]] static result<gpu_channel> open(context& ctx, std::string_view uri,
                                                  const gpu_channel_options& options, std::uint32_t layout);
    explicit gpu_channel(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel
