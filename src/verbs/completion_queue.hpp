#pragma once

#include "verbs/device.hpp"
#include "verbs/handles.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>
#include <span>

namespace accel::verbs {

/// A completion queue with its completion channel. Belongs to one thread, but for `grow`.
class completion_queue {
  public:
    /// `listener` hears of an overrun.
    [[nodiscard]] static result<std::unique_ptr<completion_queue>> create(std::shared_ptr<device> on,
                                                                          std::uint32_t depth,
                                                                          async_listener* listener);
    ~completion_queue();
    completion_queue(const completion_queue&) = delete;
    completion_queue& operator=(const completion_queue&) = delete;

    /// Makes room for `depth` completions. Any thread, while another polls.
    [[nodiscard]] result<void> grow(std::uint32_t depth);
    [[nodiscard]] std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(cq_->cqe); }

    /// How many completions it wrote; below 0 the queue has failed.
    [[nodiscard]] int poll(std::span<ibv_wc> out) noexcept {
        return ibv_poll_cq(cq_.get(), static_cast<int>(out.size()), out.data());
    }
    /// The next completion makes `event_fd` readable. Poll once more before sleeping: those that came before
    /// do not. False: the device refused.
    [[nodiscard]] bool request_event() noexcept { return ibv_req_notify_cq(cq_.get(), 0) == 0; }
    [[nodiscard]] int event_fd() const noexcept { return channel_->fd; }
    /// Takes one event; false: there is none.
    bool take_event() noexcept;
    /// Makes `event_fd` unreadable again.
    void take_events() noexcept {
        while (take_event()) continue;
    }

    [[nodiscard]] ibv_cq* get() const noexcept { return cq_.get(); }

  private:
    completion_queue(std::shared_ptr<device> on, channel_handle channel, cq_handle cq) noexcept;

    std::shared_ptr<device> device_;
    channel_handle channel_;
    cq_handle cq_;
    unsigned unacknowledged_ = 0;
};

}  // namespace accel::verbs
