// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/arrivals.hpp"
#include "backends/shm/link.hpp"
#include "backends/shm/segment.hpp"
#include "core/backend.hpp"
#include "staging/stream_wait.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace accel::shm {

/// All links of one thread. Messages are looked for in memory; the epoll tells of wake-ups, of peers that are gone, and
/// of a server's new connections.
class shm_poller final : public core::poller {
  public:
    /// `gpus`: the context's; null: none.
    [[nodiscard]] static result<std::unique_ptr<core::poller>> open(const core::poller_options& options,
                                                                    std::shared_ptr<core::accelerator> gpus = {});

    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return epoll_.get(); }
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;
    [[nodiscard]] bool sleep(int other_fd, core::nanoseconds until) noexcept override;
    [[nodiscard]] result<void> take_connection(core::data_connection& made) override { return door_->take(made); }

    // For the links.
    /// Server: where the link waits for its client.
    [[nodiscard]] arrivals& door() noexcept { return *door_; }
    /// For one more link.
    void make_room();
    /// From now on the link is polled. False: the OS cannot watch its socket. After `make_room`.
    [[nodiscard]] bool add(shm_link& link) noexcept;
    /// Nothing is polled or awaited for the link any more; its socket is still open.
    void remove(shm_link& link) noexcept;
    /// The OS no longer watches the link.
    void unwatch(const shm_link& link) noexcept;

    [[nodiscard]] const std::shared_ptr<core::accelerator>& gpus() const noexcept { return gpus_; }
    /// From now on copies of GPUs can wake this poller.
    [[nodiscard]] result<void> make_waker();
    [[nodiscard]] core::stream_waker& waker() noexcept { return *waker_; }

  private:
    shm_poller(core::unique_fd epoll, std::shared_ptr<core::accelerator> gpus) noexcept
        : gpus_(std::move(gpus)), epoll_(std::move(epoll)) {}
    [[nodiscard]] result<void> serve();
    [[nodiscard]] bool watch(int fd, void* tag) noexcept;
    [[nodiscard]] bool watch_other(int fd) noexcept;
    bool ask_epoll(core::nanoseconds until) noexcept;
    void take_arrivals() noexcept;
    void publish() noexcept;
    [[nodiscard]] bool asleep() const noexcept { return (sleep_ & 1) != 0; }
    [[nodiscard]] bool has_work() const noexcept;
    [[nodiscard]] std::size_t poll_all(std::span<core::link_event> out) noexcept;

    std::shared_ptr<core::accelerator> gpus_;
    core::unique_fd epoll_;
    std::optional<core::wake_signal> copied_;  ///< readable when a copy of a GPU has ended; none without such copies
    std::optional<core::stream_waker> waker_;  ///< sets it
    segment page_;                             ///< server
    std::optional<arrivals> door_;             ///< server
    std::vector<shm_link*> links_;             ///< connected
    std::size_t next_ = 0;  ///< where the next poll begins, for fairness; below the number of links, if any
    std::uint32_t polls_ = 0;
    std::uint32_t sleep_ = 0;  ///< as peers see it
    bool ask_ = false;         ///< the next poll calls epoll: something may have made it readable
    bool slept_ = false;       ///< by `sleep`, which has taken the epoll's events
    int other_fd_ = -1;        ///< of `sleep`, in the epoll
};

}  // namespace accel::shm
