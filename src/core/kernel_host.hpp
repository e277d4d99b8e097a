// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/poller.hpp"

#include <accel_transport/options.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace accel::device {
struct channel_ref;
struct service_ref;
}  // namespace accel::device

/// The contract for GPU-resident services and channels: the host makes, watches and ends what kernels use,
/// and sees none of their messages.
namespace accel::core {

/// How kernels reach their device.
struct kernel_engine {
    gpu_engine engine = gpu_engine::automatic;
    std::string reason;
    nanoseconds cpu_time{};  ///< that it has taken from the host, beside the watching thread
};

/// Everything that its sessions will need is made before the kernels run.
struct kernel_options {
    std::shared_ptr<accelerator> gpus;
    accelerator_device* gpu = nullptr;  ///< null: a thread of the host in a kernel's place
    std::uint32_t sessions = 0;
    link_geometry limits{};      ///< of a session
    nanoseconds call_timeout{};  ///< client
};

/// What one thread watches for kernels: connections without a data path. The only event is `lost`.
class kernel_host : public event_source {
  public:
    /// Control path, any thread.
    [[nodiscard]] virtual result<std::unique_ptr<connection>> open_connection(const link_config& config) = 0;
    [[nodiscard]] virtual kernel_engine engine() const = 0;
};

/// The host of a service whose requests kernels take.
class kernel_service : public kernel_host {
  public:
    /// What kernels are given.
    [[nodiscard]] virtual const device::service_ref& service() const noexcept = 0;
    /// Kernels are to end. Any thread.
    virtual void request_stop() noexcept = 0;
    /// All kernels have ended: nothing waits for them any more.
    virtual void kernels_ended() noexcept = 0;
};

/// The host of a channel whose calls come from kernels. It has one connection. Any thread.
class kernel_client : public kernel_host {
  public:
    /// What kernels are given; once its connection is attached.
    [[nodiscard]] virtual const device::channel_ref& channel() const noexcept = 0;
    /// The server's clock minus ours.
    virtual void set_clock_offset(nanoseconds offset) noexcept = 0;
    /// Calls end with this from about now on. The first reason stays.
    virtual void end(status why) noexcept = 0;
    /// No kernel uses it any more: brings what kernels report up to date.
    [[nodiscard]] virtual result<void> finish_report() = 0;
};

/// A backend that serves kernels.
class kernel_backend {
  public:
    virtual ~kernel_backend() = default;
    [[nodiscard]] virtual result<std::unique_ptr<kernel_service>> open_service(
        const poller_options& options, const kernel_options& kernels) = 0;
    [[nodiscard]] virtual result<std::unique_ptr<kernel_client>> open_client(
        const poller_options& options, const kernel_options& kernels) = 0;
};

}  // namespace accel::core
