// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "kernels/connection.hpp"
#include "kernels/engine_choice.hpp"
#include "kernels/kernel_host.hpp"
#include "kernels/kernel_memory.hpp"
#include "kernels/kernel_watch.hpp"
#include "kernels/proxy/proxy_threads.hpp"
#include "kernels/queues/queue_set.hpp"
#include "kernels/service/service_memory.hpp"
#include "verbs/async_events.hpp"
#include "verbs/device.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace accel::gpu {

class service_link;

/// The host's part of a GPU-resident service: handles its connections and never sees a request. One for each
/// service. `poll` reports lost sessions and nothing else, so the thread hardly ever wakes.
class service_poller final : public kernel_service, public verbs::async_listener {
  public:
    /// `proxies`: those that services with `proxy_threads` share.
    [[nodiscard]] static result<std::unique_ptr<kernel_service>> open(const core::poller_options& options,
                                                                      const kernel_setup& kernels,
                                                                      std::shared_ptr<proxy_threads> proxies);
    ~service_poller() override;
    service_poller(const service_poller&) = delete;
    service_poller& operator=(const service_poller&) = delete;

    [[nodiscard]] result<std::unique_ptr<core::connection>> open_connection(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return wake_fd_; }
    [[nodiscard]] bool arm() noexcept override { return !commands_pending_.load(std::memory_order_seq_cst); }
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    [[nodiscard]] const device::service_ref& service() const noexcept override { return memory_->service(); }
    [[nodiscard]] kernel_engine engine() const override;
    void tell_cancelled(core::connection& of, call_id which) noexcept override;
    void request_stop() noexcept override;
    void on_async_event(ibv_event_type type) noexcept override;
    void kernels_ended() noexcept override;

    // For the links; from any thread where it says so.
    [[nodiscard]] const std::shared_ptr<verbs::device>& device() const noexcept { return device_; }
    [[nodiscard]] const verbs_options& options() const noexcept { return options_; }
    [[nodiscard]] const core::link_geometry& limits() const noexcept { return limits_; }
    /// Where its slots are; null: on the host.
    [[nodiscard]] core::accelerator_device* slots_on() const noexcept {
        return sizes_.host_slots ? nullptr : kernel_memory_.gpu();
    }
    [[nodiscard]] connection& connection_at(std::uint32_t index) noexcept { return *connections_[index]; }
    [[nodiscard]] service_memory& memory() noexcept { return *memory_; }
    [[nodiscard]] queue_set& queues() noexcept { return *queues_; }
    [[nodiscard]] const service_sizes& sizes() const noexcept { return sizes_; }
    /// Any thread. Takes a free connection. `overloaded`: there is none.
    [[nodiscard]] result<std::uint32_t> take_place();
    void give_connection_back(std::uint32_t index) noexcept;
    /// Any thread.
    std::uint32_t command(device::detail::command_kind kind, std::uint32_t session) noexcept;
    void add(service_link& link);
    void remove(service_link& link) noexcept;
    /// The device or the completion queue has failed, and with it every session.
    [[nodiscard]] bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }
    /// The GPU has failed, and all kernels have ended with it.
    [[nodiscard]] bool gpu_lost() const noexcept { return kernel_memory_.gpu_lost(); }
    /// Where its kernels run; null: on the host.
    [[nodiscard]] const core::accelerator_device* gpu() const noexcept { return kernel_memory_.gpu(); }
    [[nodiscard]] bool have_kernels_ended() const noexcept {
        return kernels_ended_.load(std::memory_order_seq_cst) || gpu_lost();
    }

  private:
    service_poller(engine_choice choice, const core::poller_options& options, const kernel_setup& kernels,
                   std::shared_ptr<proxy_threads> proxies);
    [[nodiscard]] result<void> prepare();
    [[nodiscard]] result<void> make_queues();
    [[nodiscard]] bool discard_connections() noexcept;
    [[nodiscard]] result<void> register_slots(connection& place);
    [[nodiscard]] result<void> write_shared_state();
    [[nodiscard]] result<void> write_exclusive_state();

    std::shared_ptr<verbs::device> device_;
    gpu_engine engine_;
    std::string reason_;  ///< why this engine
    verbs_options options_;
    proxy_sharing proxies_;
    core::link_geometry limits_;
    kernel_memory kernel_memory_;
    service_sizes sizes_;
    std::unique_ptr<service_memory> memory_;
    std::unique_ptr<queue_set> queues_;
    std::vector<std::unique_ptr<connection>> connections_;
    int wake_fd_;
    kernel_watch watch_;
    std::atomic<bool> kernels_ended_{false};
    std::atomic<bool> failed_{false};

    std::atomic<bool> commands_pending_{false};
    std::mutex mutex_;  ///< of what follows; met when a link comes or goes
    std::vector<std::uint32_t> free_;
    std::vector<service_link*> links_;
};

}  // namespace accel::gpu
