// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "device/harness/service.hpp"
#include "kernels/queues/queue_set.hpp"
#include "verbs/async_events.hpp"
#include "verbs/device.hpp"
#include "verbs/domain_list.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace accel::tests {

class harness_link;

/// A worker of the host in a kernel's place: it takes requests, and posts responses, by the functions that
/// kernels use (`device/service.hpp`), one request a `poll`. What a kernel leaves to the host is done here
/// too: queues and sessions are made, one by one, and the worker sleeps where a kernel would look on.
class harness_poller final : public core::poller, public verbs::async_listener {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(std::shared_ptr<verbs::device> on,
                                                                    std::shared_ptr<verbs::domain_list> domains,
                                                                    const core::poller_options& options);
    ~harness_poller() override;
    harness_poller(const harness_poller&) = delete;
    harness_poller& operator=(const harness_poller&) = delete;

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return epoll_fd_; }
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;

    // For the links. Those marked so from any thread.
    [[nodiscard]] const std::shared_ptr<verbs::device>& device() const noexcept { return device_; }
    [[nodiscard]] verbs::domain_list& domains() const noexcept { return *domains_; }
    [[nodiscard]] const verbs_options& options() const noexcept { return options_; }
    [[nodiscard]] gpu::queue_set& queues() noexcept { return *queues_; }
    [[nodiscard]] harness_service& sessions() noexcept { return *service_; }
    /// Any thread: from now on the link's session is served.
    void open(harness_link& link, const device::detail::session_entry& entry,
              const device::detail::session_offer& offer);
    /// After its queue pair is gone; if it has been opened, on the polling thread.
    void remove(harness_link& link, bool opened) noexcept;
    /// The link may have something to tell at each poll from now on.
    void mark_pending(harness_link& link) noexcept;
    /// Any thread: the link's queue pair has failed.
    void report(harness_link& link) noexcept;
    /// Before a link uses the queues, and after it has ended. Any thread.
    [[nodiscard]] result<void> admit();
    void dismiss() noexcept;
    void on_async_event(ibv_event_type type) noexcept override;

  private:
    harness_poller(std::shared_ptr<verbs::device> on, std::shared_ptr<verbs::domain_list> domains,
                   const core::poller_options& options);
    [[nodiscard]] result<void> make_queues();
    void replace_queues() noexcept;
    void wake() noexcept;
    void take_commands() noexcept;
    void note_failures() noexcept;
    [[nodiscard]] std::size_t take(core::link_event& out) noexcept;
    [[nodiscard]] std::size_t drain_events(std::span<core::link_event> out) noexcept;

    std::shared_ptr<verbs::device> device_;
    std::shared_ptr<verbs::domain_list> domains_;
    verbs_options options_;
    std::uint32_t places_;
    int epoll_fd_;
    int wake_fd_;
    gpu::kernel_memory memory_{nullptr, nullptr};  ///< of the rings
    std::unique_ptr<gpu::queue_set> queues_;
    std::unique_ptr<harness_service> service_;
    std::vector<harness_link*> by_place_;
    std::vector<harness_link*> links_;          ///< that the polling thread knows
    std::vector<harness_link*> pending_links_;  ///< capacity for all of them
    std::uint32_t failures_seen_ = 0;
    bool failed_ = false;  ///< the device or the completion queue: no session is of any more use
    core::nanoseconds replace_at_{};

    std::atomic<bool> commands_pending_{false};
    std::mutex mutex_;  ///< of what follows; met only when a link comes, goes or fails
    std::vector<harness_link*> added_;
    std::vector<harness_link*> reported_;
    bool device_failed_ = false;
    bool overrun_ = false;
    std::uint32_t links_alive_ = 0;  ///< queues change with none only
};

}  // namespace accel::tests
