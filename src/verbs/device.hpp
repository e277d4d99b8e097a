// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/async_events.hpp"
#include "verbs/handles.hpp"
#include "verbs/port.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::verbs {

class mlx5_driver;

/// An open RDMA device, one of its ports, and the thread that hears its asynchronous events. Shared by all
/// queue pairs of a context that use this port.
class device {
  public:
    /// The device that `wanted` names, or the best of this machine: one of which `near_host` is an address,
    /// else the first whose port is active. `unsupported`, with the reason for each device that will not do.
    [[nodiscard]] static result<std::shared_ptr<device>> open(const verbs_options& wanted,
                                                              const std::string& near_host);

    [[nodiscard]] ibv_context& context() const noexcept { return *context_; }
    [[nodiscard]] const port_address& port() const noexcept { return port_; }
    [[nodiscard]] const ibv_device_attr& limits() const noexcept { return limits_; }
    [[nodiscard]] async_events& events() noexcept { return *events_; }
    [[nodiscard]] std::string_view name() const noexcept { return ibv_get_device_name(context_->device); }
    /// For people: "mlx5_0 port 1, RoCE at 10.1.2.3 (GID 3), MTU 4096"; says so where no hardware is behind it.
    [[nodiscard]] std::string describe() const;
    /// "emulated by softnic" or the like for a device that is made of software; empty for others.
    [[nodiscard]] std::string_view emulation() const noexcept { return emulation_; }

    /// Where this device's queues lie, which are then driven directly; null: by libibverbs.
    [[nodiscard]] const mlx5_driver* driver() const noexcept { return driver_; }

    device(context_handle context, const port_address& port, const ibv_device_attr& limits, const mlx5_driver* driver);

  private:
    context_handle context_;
    port_address port_;
    ibv_device_attr limits_;
    std::string_view emulation_;
    const mlx5_driver* driver_;
    std::optional<async_events> events_;
};

}  // namespace accel::verbs
