#pragma once

#include "core/device_names.hpp"
#include "verbs/device.hpp"
#include "verbs/handles.hpp"
#include "verbs/work_completion.hpp"

#include <accel_transport/device/detail/mlx5/completion_queue.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <memory>
#include <span>

namespace accel::verbs {

/// A completion queue with its completion channel, read by libibverbs, or on a device that is driven directly
/// where it lies. Belongs to one thread.
class completion_queue {
  public:
    /// `listener` hears of an overrun.
    [[nodiscard]] static result<std::unique_ptr<completion_queue>> create(std::shared_ptr<device> on,
                                                                          std::uint32_t depth,
                                                                          async_listener* listener);
    ~completion_queue();
    completion_queue(const completion_queue&) = delete;
    completion_queue& operator=(const completion_queue&) = delete;

    [[nodiscard]] std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(cq_->cqe); }

    /// How many completions it wrote; below 0 the queue has failed.
    [[nodiscard]] int poll(std::span<work_completion> out) noexcept {
        return is_direct() ? poll_directly(out) : poll_by_verbs(out);
    }
    /// The queue pair has been destroyed: what it left is nobody's, also when its number comes again.
    void discard_completions(std::uint32_t queue_pair) noexcept {
        if (is_direct()) mlx5::discard_completions(direct_, queue_pair);
    }
    /// The next completion makes `event_fd` readable. Poll once more before sleeping: those that came before
    /// do not. False: the device refused.
    [[nodiscard]] bool request_event() noexcept {
        if (!is_direct()) return ibv_req_notify_cq(cq_.get(), 0) == 0;
        mlx5::arm(direct_);
        return true;
    }
    [[nodiscard]] int event_fd() const noexcept { return channel_->fd; }
    /// Takes one event; false: there is none.
    bool take_event() noexcept;
    /// Makes `event_fd` unreadable again.
    void take_events() noexcept {
        while (take_event()) continue;
    }

    [[nodiscard]] ibv_cq* get() const noexcept { return cq_.get(); }
    /// Where it lies, for others to take completions from; without entries where libibverbs reads it.
    [[nodiscard]] const mlx5::completion_queue_ref& located() const noexcept { return direct_; }

  private:
    completion_queue(std::shared_ptr<device> on, channel_handle channel, cq_handle cq,
                     const mlx5::completion_queue_ref& direct) noexcept;
    [[nodiscard]] bool is_direct() const noexcept { return direct_.entries != nullptr; }
    [[nodiscard]] int poll_directly(std::span<work_completion> out) noexcept;
    [[nodiscard]] int poll_by_verbs(std::span<work_completion> out) noexcept;
    [[nodiscard]] static bool translate(const mlx5::completion& from, work_completion& to) noexcept;
    [[nodiscard]] static bool translate_other(const mlx5::completion& from, work_completion& to) noexcept;

    std::shared_ptr<device> device_;
    channel_handle channel_;
    cq_handle cq_;
    mlx5::completion_queue_state state_;
    mlx5::completion_queue_ref direct_;  ///< without entries: libibverbs reads the queue
    unsigned unacknowledged_ = 0;
};

[[gnu::always_inline]] inline bool completion_queue::translate(const mlx5::completion& from,
                                                               work_completion& to) noexcept {
    to.queue_pair = from.queue_pair;
    to.immediate = mlx5::from_be(from.immediate);
    to.counter = from.counter;
    to.status = IBV_WC_SUCCESS;
    to.kind = from.kind == mlx5::entry_kind::request ? completed::sent : completed::arrived;
    const bool usual =
        from.kind == mlx5::entry_kind::request || from.kind == mlx5::entry_kind::write_immediate;
    return usual || translate_other(from, to);
}

inline int completion_queue::poll_directly(std::span<work_completion> out) noexcept {
    int count = 0;
    for (work_completion& each : out) {
        mlx5::completion taken;
        if (!mlx5::take(direct_, taken)) break;
        if (!translate(taken, each)) [[unlikely]]
            return -1;
        ++count;
    }
    if (count > 0) mlx5::publish_taken(direct_);
    return count;
}

}  // namespace accel::verbs
