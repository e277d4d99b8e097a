// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/rdma/key_cache.hpp"
#include "core/backend.hpp"
#include "kernels/queues/queue_set.hpp"
#include "verbs/async_events.hpp"
#include "verbs/domain.hpp"
#include "verbs/endpoint.hpp"

#include <accel_transport/device/service.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace accel::tests {

class harness_poller;

/// One client whose requests a worker takes in a kernel's place, and its place among the service's sessions.
/// harness_control.cpp makes and ends it, harness_datapath.cpp takes and answers.
class harness_link final : public core::link, public verbs::async_listener {
  public:
    [[nodiscard]] static result<std::unique_ptr<core::link>> create(harness_poller& owner,
                                                                    const core::link_config& config);
    ~harness_link() override;
    harness_link(const harness_link&) = delete;
    harness_link& operator=(const harness_link&) = delete;

    [[nodiscard]] core::link_description describe() const override;
    [[nodiscard]] result<void> attach(const core::link_grant& grant, core::nanoseconds deadline) override;
    void activate() override;
    void peer_left() noexcept override { peer_left_ = true; }
    [[nodiscard]] bool close() noexcept override;
    [[nodiscard]] status deliver(const core::outgoing& message) noexcept override;
    [[nodiscard]] status deliver_plain(std::uint32_t slot, std::span<const std::byte> payload) noexcept override;
    [[nodiscard]] bool retract(std::uint32_t) noexcept override { return true; }
    void consumed(std::uint32_t) noexcept override {}
    [[nodiscard]] bool flushed() noexcept override;
    [[nodiscard]] bool reaches(const core::region_state& region, bool written) noexcept override;
    [[nodiscard]] core::slot_memory& send() const noexcept override { return *config_.send; }
    [[nodiscard]] core::slot_memory& receive() const noexcept override { return *config_.receive; }

    // For the poller.
    [[nodiscard]] std::uint32_t place() const noexcept { return *place_; }
    /// A message has come; false if it makes no event, else that is written to `out`.
    [[nodiscard]] bool take(const device::detail::ready_entry& arrived, core::link_event& out) noexcept;
    /// The link is of no more use; the next `drain_events` says so.
    void fail(status reason) noexcept;
    /// The same, if the device code says so of its session.
    void note_failure() noexcept;
    /// `buffer_released` and `lost`. Returns how many events it wrote.
    [[nodiscard]] std::size_t drain_events(std::span<core::link_event> out) noexcept;
    [[nodiscard]] bool has_something_to_tell() const noexcept {
        return state_ == state::losing || (!lent_.empty() && has_been_sent(lent_.front().until));
    }
    /// … now, or once lent memory is no longer read.
    [[nodiscard]] bool waits_to_tell() const noexcept { return state_ == state::losing || !lent_.empty(); }
    void on_async_event(ibv_event_type type) noexcept override;
    /// On the polling thread, after `on_async_event`.
    void settle_async_failure() noexcept { fail(async_reason_.load(std::memory_order_relaxed)); }

    bool pending = false;  ///< kept by the poller: it is going to ask what there is to tell

  private:
    enum class state : std::uint8_t {
        idle,  ///< not active yet
        open,
        losing,  ///< failed; the `lost` event is still to be told
        lost,
        closed,
    };
    /// An answer from lent memory: the device is done with it when it has sent so much.
    struct lent_answer {
        std::uint32_t slot = 0;
        std::uint32_t until = 0;
    };
    harness_link(harness_poller& owner, const core::link_config& config, std::shared_ptr<verbs::domain> domain);
    [[nodiscard]] result<void> prepare();
    [[nodiscard]] result<void> make_queue();
    [[nodiscard]] device::detail::session_offer offer() const noexcept;
    [[nodiscard]] const verbs::memory_keys* keys_of(const core::region_state& region, verbs::access use) noexcept;
    [[nodiscard]] bool take_part_room(const core::slot_header& room) noexcept;
    [[nodiscard]] status answer_room(std::uint32_t slot, std::size_t length) noexcept;
    [[nodiscard]] status send_from(std::uint32_t slot, const device::detail::answer_bytes& from,
                                   std::size_t length) noexcept;
    [[nodiscard]] device::detail::answer_bytes own_bytes(std::uint32_t slot) const noexcept;
    [[nodiscard]] status post_marker() noexcept;
    [[nodiscard]] status post_extensions(std::uint32_t slot, std::size_t bytes) noexcept;
    [[nodiscard]] bool has_been_sent(std::uint32_t position) const noexcept {
        return static_cast<std::int32_t>(device::detail::sent_by(queue_.port) - position) >= 0;
    }
    void let_exchanges_go() noexcept;
    void end() noexcept;

    harness_poller& poller_;
    core::link_config config_;
    std::shared_ptr<verbs::domain> domain_;
    verbs::region_handle requests_;
    verbs::region_handle responses_;
    gpu::kernel_memory memory_{nullptr, nullptr};
    gpu::session_queue queue_;
    // What a kernel keeps to post.
    mlx5::shared_send_queue_state direct_state_;
    std::vector<mlx5::ready_request> whole_;
    proxy::send_queue_state proxied_state_;
    std::optional<std::uint32_t> place_;
    verbs::endpoint peer_;
    state state_ = state::idle;
    status reason_ = status::ok;
    std::atomic<status> async_reason_{status::ok};
    bool opened_ = false;   ///< the device code knows its session
    bool closing_ = false;  ///< `close` was called; answers may still be on their way
    bool peer_left_ = false;
    std::optional<std::uint32_t> flushing_to_;
    core::nanoseconds close_by_{};
    rdma::key_cache keys_;
    std::vector<std::uint32_t> generations_;
    std::vector<std::uint32_t> busy_;
    std::vector<device::detail::part_slot> parts_;
    /// One a slot: as the device code has it. Its `request` is null while none is open.
    std::vector<device::exchange_ref> exchanges_;
    std::vector<lent_answer> lent_;  ///< in the order they were posted; capacity for all slots
};

}  // namespace accel::tests
