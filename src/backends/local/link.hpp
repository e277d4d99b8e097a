// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/local/pair.hpp"
#include "core/backend.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace accel::local {

class local_poller;

class local_link final : public core::link {
  public:
    local_link(local_poller& owner, const core::link_config& config);
    ~local_link() override;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    void peer_left() noexcept override;
    [[nodiscard]] bool close() noexcept override;
    [[nodiscard]] core::recall recalled() noexcept override;
    [[nodiscard]] bool leave_lease(std::uint32_t slot, std::atomic<std::uint32_t>& leases) noexcept override;
    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override;
    [[nodiscard]] bool retract(std::uint32_t slot) noexcept override;
    void consumed(std::uint32_t slot) noexcept override;
    [[nodiscard]] core::slot_memory& send() const noexcept override;
    [[nodiscard]] core::slot_memory& receive() const noexcept override;

    /// Takes what has arrived; returns how many events it wrote.
    [[nodiscard]] std::size_t take(std::span<core::link_event> out) noexcept;
    [[nodiscard]] bool something_to_take() const noexcept;

  private:
    void fill(core::link_event& event, const entry& from) const noexcept;
    [[nodiscard]] std::size_t take_several(std::span<core::link_event> out) noexcept;
    [[nodiscard]] std::size_t take_last(std::span<core::link_event> out) noexcept;
    void put(std::uint32_t slot, std::span<const std::byte> payload, bool lent,
             std::span<std::byte> response_room) noexcept;
    void lend(std::uint32_t slot) noexcept;
    void enter(side& mine, side& peer) noexcept;
    [[nodiscard]] bool waits_no_longer() noexcept;
    void release_peer_memory(std::uint32_t slot) noexcept;

    local_poller& owner_;
    core::link_role role_;
    void* events_owner_;
    std::shared_ptr<pair> pair_;
    std::uint64_t key_ = 0;
    // The sides of `pair_`, by role.
    side* mine_ = nullptr;
    side* peer_ = nullptr;
    core::slot_memory* incoming_slots_ = nullptr;
    core::nanoseconds give_up_at_ = core::never;
    bool loss_reported_ = false;
    bool activated_ = false;  ///< before that the poller's thread does not know it, and any thread may end it
};

/// The links of one thread, polled round-robin.
class local_poller final : public core::poller {
  public:
    local_poller() : wakeup_(std::make_shared<wakeup>()) {}
    [[nodiscard]] result<std::unique_ptr<core::link>> open_link(const core::link_config& config) override;
    [[nodiscard]] std::size_t poll(std::span<core::link_event> out) noexcept override;
    [[nodiscard]] int event_fd() const noexcept override { return wakeup_->signal.fd(); }
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;

    void add(local_link& made);
    void remove(local_link& gone) noexcept;
    [[nodiscard]] const std::shared_ptr<wakeup>& waker() const noexcept { return wakeup_; }

  private:
    void take_added() noexcept;
    void find_only() noexcept;
    [[nodiscard]] std::size_t poll_all(std::span<core::link_event> out) noexcept;

    std::shared_ptr<wakeup> wakeup_;
    /// The only one of `links_`; null: there are none or several, or `added_` has some.
    std::atomic<local_link*> only_{nullptr};
    std::vector<local_link*> links_;
    std::size_t next_ = 0;  ///< where the next poll begins, for fairness; below the number of links, if any
    std::atomic<bool> added_pending_{false};
    std::mutex added_mutex_;
    std::vector<local_link*> added_;
    std::vector<local_link*> room_;  ///< for `links_` and `added_` together
};

}  // namespace accel::local
