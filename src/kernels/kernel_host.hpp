// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/poller.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/device/detail/layout_version.hpp>
#include <accel_transport/gpu_options.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace accel::device {
struct channel_ref;
struct service_ref;
}  // namespace accel::device

/// The contract for GPU-resident services and channels: the host makes, watches and ends what kernels use. It
/// sees no messages.
namespace accel::gpu {

/// How kernels reach their device.
struct kernel_engine {
    gpu_engine engine = gpu_engine::automatic;
    std::string reason;
    core::nanoseconds cpu_time{};  ///< of the host, without the watching thread's
};

/// What is made for kernels before they run, and the sizes for all sessions.
struct kernel_setup {
    std::shared_ptr<core::accelerator> gpus;
    core::accelerator_device* gpu = nullptr;  ///< null: a thread of the host acts as the kernel
    std::uint32_t sessions = 0;
    core::link_geometry limits{};      ///< of a session
    core::nanoseconds call_timeout{};  ///< client
    kernel_options options{};
};

/// Connections without a data path, which one thread watches for kernels. The only event is `lost`.
class kernel_host : public core::event_source {
  public:
    /// Control path, any thread.
    [[nodiscard]] virtual result<std::unique_ptr<core::connection>> open_connection(
        const core::link_config& config) = 0;
    [[nodiscard]] virtual kernel_engine engine() const = 0;
};

/// The host of a service whose requests kernels take.
class kernel_service : public kernel_host {
  public:
    /// The argument for kernels.
    [[nodiscard]] virtual const device::service_ref& service() const noexcept = 0;
    /// Tells kernels that the client of this connection waits for the call no more. Any thread, until the session is
    /// lost.
    virtual void tell_cancelled(core::connection& of, call_id which) noexcept = 0;
    /// Asks kernels to end. Any thread.
    virtual void request_stop() noexcept = 0;
    /// All kernels have ended; nothing waits for them from now on.
    virtual void kernels_ended() noexcept = 0;
};

/// The host of a channel whose calls come from kernels. It has one connection. Any thread.
class kernel_client : public kernel_host {
  public:
    /// The argument for kernels, once the connection is attached.
    [[nodiscard]] virtual const device::channel_ref& channel() const noexcept = 0;
    /// The server's clock minus ours.
    virtual void set_clock_offset(core::nanoseconds offset) noexcept = 0;
    /// From about now on no calls begin; those in flight go on.
    virtual void go_away() noexcept = 0;
    /// When it returns, kernels find what had come from the server.
    virtual void catch_up() noexcept = 0;
    /// Ends calls with this status from about now on. The first reason stays.
    virtual void end(status why) noexcept = 0;
    /// Calls that kernels have cancelled since the last look, of which the server has to hear. How many: if all of
    /// `out`, there may be more. By the thread that polls.
    [[nodiscard]] virtual std::size_t take_cancelled(std::span<call_id> out) noexcept = 0;
    /// After the last kernel: makes the report complete.
    [[nodiscard]] virtual result<void> finish_report() = 0;
};

/// A backend that serves kernels.
class kernel_backend {
  public:
    virtual ~kernel_backend() = default;
    [[nodiscard]] virtual result<std::unique_ptr<kernel_service>> open_service(const core::poller_options& options,
                                                                               const kernel_setup& kernels) = 0;
    [[nodiscard]] virtual result<std::unique_ptr<kernel_client>> open_client(const core::poller_options& options,
                                                                             const kernel_setup& kernels) = 0;
};

/// Refuses code that was compiled against another version of the device headers. `who` begins the sentence.
[[nodiscard]] inline error other_version(std::string_view who, std::uint32_t version) {
    return {status::unsupported, 0,
            fmt::format("gpu: {} was compiled with version {} of the headers in accel_transport/device, and this "
                        "library with version {}; compile both with the same version",
                        who, version, device::detail::layout_version)};
}

}  // namespace accel::gpu
