// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "kernels/channel/client_memory.hpp"
#include "kernels/connection.hpp"
#include "kernels/engine_choice.hpp"
#include "kernels/kernel_memory.hpp"
#include "kernels/kernel_watch.hpp"
#include "kernels/proxy/proxy_threads.hpp"
#include "kernels/queues/queue_set.hpp"
#include "verbs/async_events.hpp"
#include "verbs/device.hpp"
#include "verbs/endpoint.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace accel::gpu {

/// The host's part of one GPU-resident channel. It makes and ends the connection and never sees a call.
/// `poll` reports at most one event: the connection is lost.
class client_poller final : public kernel_client, public verbs::async_listener {
  public:
    /// `proxies`: those that services with `proxy_threads` share.
    [[nodiscard]] static result<std::unique_ptr<kernel_client>> open(const core::poller_options& options,
                                                                     const kernel_setup& kernels,
                                                                     std::shared_ptr<proxy_threads> proxies);
    ~client_poller() override;
    client_poller(const client_poller&) = delete;
    client_poller& operator=(const client_poller&) = delete;

    // kernel_host.
    [[nodiscard]] result<std::unique_ptr<core::connection>> open_connection(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return wake_fd_; }
    [[nodiscard]] bool arm() noexcept override { return true; }
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    [[nodiscard]] kernel_engine engine() const override;

    // kernel_client.
    [[nodiscard]] const device::channel_ref& channel() const noexcept override { return memory_->channel(); }
    void set_clock_offset(core::nanoseconds offset) noexcept override {
        clock_offset_.store(offset.count(), std::memory_order_relaxed);
    }
    void go_away() noexcept override;
    void catch_up() noexcept override { queues_->catch_up(); }
    void end(status why) noexcept override;
    [[nodiscard]] std::size_t take_cancelled(std::span<call_id> out) noexcept override {
        return memory_->take_cancelled(out);
    }
    [[nodiscard]] result<void> finish_report() override { return memory_->finish_report(); }

    void on_async_event(ibv_event_type type) noexcept override;

    // For the link.
    [[nodiscard]] core::link_description describe() const;
    [[nodiscard]] result<void> connect(const core::link_grant& grant, core::nanoseconds deadline);
    /// After this neither end touches any slot.
    void disconnect() noexcept;

  private:
    /// Where its slots are; null: on the host.
    [[nodiscard]] core::accelerator_device* slots_on() const noexcept {
        return sizes_.host_slots ? nullptr : kernel_memory_.gpu();
    }
    client_poller(engine_choice choice, const core::poller_options& options, const kernel_setup& kernels,
                  std::shared_ptr<proxy_threads> proxies);
    [[nodiscard]] result<void> prepare();
    [[nodiscard]] result<void> make_queues();
    [[nodiscard]] result<void> make_slots();
    void leave_place_behind() noexcept;
    [[nodiscard]] bool replace_end(std::uint32_t& before, std::uint32_t told) noexcept;
    /// False: they are in a GPU's memory, and only kernels post there.
    [[nodiscard]] bool reaches_queues() const noexcept {
        return queues_->place() == mlx5::queue_place::host || kernel_memory_.gpu() == nullptr;
    }
    [[nodiscard]] client_start start_with(const verbs::endpoint& peer) const;
    [[nodiscard]] result<void> probe_path(const device::channel_ref& channel, const verbs::endpoint& peer,
                                          core::nanoseconds deadline);

    std::shared_ptr<verbs::device> device_;
    gpu_engine engine_;
    std::string reason_;  ///< why this engine
    verbs_options options_;
    proxy_sharing proxies_;
    core::link_geometry shape_;
    core::nanoseconds call_timeout_;
    kernel_memory kernel_memory_;
    service_sizes sizes_;  ///< of one session
    std::unique_ptr<client_memory> memory_;
    std::unique_ptr<queue_set> queues_;
    std::unique_ptr<connection> place_;
    std::shared_ptr<core::slot_memory> receive_;
    int wake_fd_;
    kernel_watch watch_;
    std::atomic<std::int64_t> clock_offset_{0};
    std::atomic<bool> failed_{false};
    failure_blame blame_;
    bool loss_reported_ = false;  ///< that the connection is lost
    bool ended_ = false;          ///< nothing of the connection is left
    void* owner_ = nullptr;
};

}  // namespace accel::gpu
