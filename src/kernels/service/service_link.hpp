// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "kernels/service/service_poller.hpp"
#include "verbs/endpoint.hpp"

#include <cstdint>
#include <memory>

namespace accel::gpu {

/// One client of a GPU-resident service: makes and ends its connection. Kernels take its messages.
class service_link final : public core::connection {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::connection>> create(service_poller& owner,
                                                                          const core::link_config& config);
    ~service_link() override;
    service_link(const service_link&) = delete;
    service_link& operator=(const service_link&) = delete;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    [[nodiscard]] bool close() noexcept override;
    [[nodiscard]] bool flushed() noexcept override;

    /// For the poller, on any thread.
    void tell_cancelled(call_id which) noexcept;
    // For the poller, on its thread.
    /// True once, with the reason: the session is lost.
    [[nodiscard]] bool take_loss(core::link_event& out) noexcept;

  private:
    enum class phase : std::uint8_t { idle, open, lost, closing, closed };
    service_link(service_poller& owner, const core::link_config& config, std::uint32_t index) noexcept;
    void offer(const verbs::endpoint& peer) noexcept;
    void tell_left() noexcept;

    service_poller& poller_;
    core::link_config config_;
    std::uint32_t index_;
    std::shared_ptr<core::slot_memory> send_;
    std::shared_ptr<core::slot_memory> receive_;
    phase phase_ = phase::idle;
    bool offered_ = false;
    bool quiet_ = false;           ///< its queue pair can reach no memory any more
    bool failure_logged_ = false;  ///< the failure to close has been logged
    std::uint32_t closing_number_ = 0;
    core::nanoseconds flushed_at_{};
    failure_blame blame_;
    core::nanoseconds quiet_from_{};  ///< not closed before
};

}  // namespace accel::gpu
