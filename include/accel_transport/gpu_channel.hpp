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

/// Counters of a GPU-resident channel, as last reported by its kernels; complete once it is closed.
struct gpu_channel_statistics {
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;    ///< answered by the server, whatever it said
    std::uint64_t ended_early = 0;  ///< timed out, cancelled, or with the session
    std::uint64_t stale = 0;        ///< responses of calls that had ended
    std::uint32_t quarantined = 0;  ///< slots waiting for a late response now
};

/// Why a GPU-resident channel was lost.
struct gpu_channel_failure {
    status reason = status::ok;  ///< ok while it is good; `peer_lost`, `protocol_error` …; `closed`, also while its
                                 ///< server drains; `device_lost`: a kernel has faulted, here or at the server;
                                 ///< `unsupported`: a kernel was compiled with other device headers, and refused
    std::uint8_t syndrome = 0;   ///< of the first work request that failed, as the adapter numbers them; or 0
};

/// A channel whose calls come from kernels: they write requests, post them to the adapter and read responses
/// themselves (device/client.hpp). No thread of the host takes part in a call, except one that
/// posts if the GPU cannot reach the adapter (`gpu_engine`). This is the host's end: it connects, keeps the
/// session alive and ends it. The server is any on `gpu`, `rdma` or `gdr`. When the server drains, kernels begin no
/// more calls, and take the answers of those in flight. A lost channel stays lost; connect another. Move-only; its
/// methods may be called from any thread.
class ACCEL_API gpu_channel {
  public:
    /// Connects to `gpu://host:port?key=value…` within `connect_timeout`. Makes everything that kernels will
    /// need, before any kernel runs: `slots` × (`request_bytes` + `response_bytes`) of GPU memory. With
    /// `memory` of the host, threads of the host may call with the same functions. `unsupported` names what
    /// is missing. May block.
    [[nodiscard]] static result<gpu_channel> connect(context& ctx, std::string_view uri,
                                                     const gpu_channel_options& options = {}) {
        return open(ctx, uri, options, device::detail::layout_version);
    }
    gpu_channel(gpu_channel&&) noexcept;
    gpu_channel& operator=(gpu_channel&&) noexcept;
    /// As `close()`: no kernel may be using it any more. Frees GPU memory, which waits for all kernels of
    /// that GPU, a service's too: stop that first.
    ~gpu_channel();

    /// The argument for kernels, passed by value. Valid until `close` has returned.
    [[nodiscard]] const device::channel_ref& ref() const noexcept;
    /// Where its slots are and its kernels have to run: of the options or the URI.
    [[nodiscard]] memory_kind memory() const noexcept;
    [[nodiscard]] std::size_t max_request_bytes() const noexcept;
    [[nodiscard]] std::size_t max_response_bytes() const noexcept;
    [[nodiscard]] std::uint32_t slots() const noexcept;
    /// As `channel::resolve`; kernels give the number in `call_options::target`.
    [[nodiscard]] result<target> resolve(std::string_view name);
    /// How its kernels reach the adapter.
    [[nodiscard]] gpu_engine engine() const noexcept;
    /// Why, in words that name the device and the GPU; for an exclusive channel also where its queues lie, and why.
    [[nodiscard]] const std::string& engine_reason() const noexcept;
    /// The threads that may call through it: of the options or the URI. Kernels written for an owner (`device::own`)
    /// work with either.
    [[nodiscard]] service_sharing sharing() const noexcept;
    /// False at the latest 50 ms after the session was lost, and while its server drains.
    [[nodiscard]] bool connected() const noexcept { return failure().reason == status::ok; }
    /// Also while kernels run.
    [[nodiscard]] gpu_channel_failure failure() const noexcept;
    [[nodiscard]] gpu_channel_statistics statistics() const;

    /// From about now on `begin` returns `closed`, and calls in flight end with it. Does not wait.
    void request_stop() noexcept;
    /// Requests the stop and sleeps until everything that was given to `stream` has ended; then ends the
    /// session. `timed_out`: it still runs, and nothing has been ended; call it again. `device_lost`: a kernel has
    /// faulted here; all has ended. `unsupported`: as in `gpu_channel_failure`.
    status close(CUstream_st* stream, std::chrono::nanoseconds timeout);
    /// The same where no kernel uses the channel any more.
    void close();

  private:
    friend struct core::internals;
    struct state;
    /// `layout`: of the device headers that the program was compiled with.
    [[nodiscard]] static result<gpu_channel> open(context& ctx, std::string_view uri,
                                                  const gpu_channel_options& options, std::uint32_t layout);
    explicit gpu_channel(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace accel
