// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/session_maker.hpp"
#include "kernels/kernel_host.hpp"
#include "kernels/options.hpp"

#include <memory>
#include <utility>

namespace accel::gpu {

/// Makes the sessions of a server whose requests kernels take.
class service_sessions final : public core::session_maker {
  public:
    service_sessions(std::shared_ptr<core::accelerator> gpus, const gpu_service_options& wanted)
        : gpus_(std::move(gpus)), wanted_(wanted), keys_(wanted_) {}
    [[nodiscard]] core::further_keys* keys() noexcept override { return &keys_; }
    [[nodiscard]] result<std::unique_ptr<core::event_source>> open(core::backend& scheme,
                                                                   const core::poller_options& options,
                                                                   const core::link_geometry& limits,
                                                                   core::accelerator_device* gpu) override;
    [[nodiscard]] result<std::unique_ptr<core::connection>> connect(const core::link_config& config) override;
    void cancel(core::connection& of, call_id which) noexcept override;
    void add_to(core::metrics_sums& sums) const override;
    /// After `open`; the server owns it.
    [[nodiscard]] kernel_service& kernels() const noexcept { return *kernels_; }

  private:
    std::shared_ptr<core::accelerator> gpus_;
    gpu_service_options wanted_;
    kernel_keys keys_;
    kernel_service* kernels_ = nullptr;
};

}  // namespace accel::gpu
