// SPDX-License-Identifier: Apache-2.0
#include "kernels/queues/queue_set.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

class direct_queues final : public queue_set {
  public:
    direct_queues(std::shared_ptr<verbs::device> on, std::unique_ptr<verbs::receive_queue> receives,
                  std::unique_ptr<verbs::completion_queue> completions) noexcept
        : device_(std::move(on)),
          receives_(std::move(receives)),
          completions_(std::move(completions)),
          sends_(completions_->depth() - std::min(completions_->depth(), receives_->depth())),
          sends_left_(sends_) {}

    [[nodiscard]] queue_depths depths() const noexcept override { return {receives_->depth(), sends_}; }
    [[nodiscard]] device::detail::completion_port completion_port() const override {
        device::detail::completion_port out;
        out.by = device::detail::engine::direct;
        out.direct = completions_->located();
        return out;
    }
    [[nodiscard]] mlx5::shared_receive_queue_ref receives() const override { return receives_->located(); }

    [[nodiscard]] result<void> prepare(session_queue& queue, kernel_memory& memory) override;
    [[nodiscard]] bool discard(session_queue& queue) noexcept override {
        if (queue.queue_pair) sends_left_ += queue.sends;
        queue.queue_pair.reset();
        return true;
    }
    [[nodiscard]] result<void> open(session_queue&) override { return {}; }
    [[nodiscard]] result<void> close(session_queue& queue) override { return queue.queue_pair->reset(); }
    [[nodiscard]] result<void> start(kernel_memory& with) override;

    [[nodiscard]] int event_fd() const noexcept override { return completions_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override { return completions_->request_event(); }
    void disarm() noexcept override { completions_->take_events(); }

  private:
    [[nodiscard]] bool take_sends(std::uint32_t count) noexcept;

    std::shared_ptr<verbs::device> device_;
    std::unique_ptr<verbs::receive_queue> receives_;
    std::unique_ptr<verbs::completion_queue> completions_;
    std::uint32_t sends_;
    std::atomic<std::uint32_t> sends_left_;  ///< not reserved by a queue pair
};

bool direct_queues::take_sends(std::uint32_t count) noexcept {
    std::uint32_t left = sends_left_;
    while (left >= count)
        if (sends_left_.compare_exchange_weak(left, left - count)) return true;
    return false;
}

result<void> direct_queues::prepare(session_queue& queue, kernel_memory& memory) {
    verbs::queue_sizes wanted;
    wanted.send = std::min(queue.sends, static_cast<std::uint32_t>(device_->limits().max_qp_wr));
    if (!take_sends(wanted.send)) {
        return error{
            status::overloaded, 0,
            fmt::format(
                "gpu: the completion queue of {} entries has no room for {} more work requests; use more workers",
                completions_->depth(), wanted.send)};
    }
    auto made = verbs::queue_pair::create(device_, queue.domain->get(), completions_->get(), receives_->get(), wanted,
                                          queue.listener);
    if (!made) {
        sends_left_ += wanted.send;
        return made.error();
    }
    queue.sends = wanted.send;
    queue.queue_pair.emplace(std::move(*made));
    queue.port.by = device::detail::engine::direct;
    queue.port.direct.queue = queue.queue_pair->located()->sends;
    queue.port.direct.queue.state = nullptr;
    return share_sends(memory, queue.port.direct.queue);
}

result<void> direct_queues::start(kernel_memory& with) {
    const auto& completions = completions_->located();
    const auto& receives = receives_->located();
    const std::size_t receive_ring = std::size_t{std::bit_ceil(receives_->depth() + 1)} * receives.stride;
    const auto all = {
        with.share(completions.entries, std::size_t{completions.count} * completions.entry_bytes),
        with.share(completions.doorbell_record, 2 * sizeof(mlx5::be32)),
        with.share(receives.ring, receive_ring),
        with.share(receives.doorbell_record, sizeof(mlx5::be32)),
    };
    for (const auto& each : all)
        if (!each) return each;
    return {};
}

}  // namespace

result<std::unique_ptr<queue_set>> make_direct_queues(std::shared_ptr<verbs::device> on, const queue_depths& wanted,
                                                      verbs::async_listener* listener) {
    auto receives = verbs::receive_queue::create(on, wanted.receives);
    if (!receives) return receives.error();
    verbs::empty_receives chain;
    (void)(*receives)->post((*receives)->depth(), chain);
    // When a queue pair fails, unsignalled requests complete too.
    auto completions = verbs::completion_queue::create(on, (*receives)->depth() + wanted.sends, listener);
    if (!completions) return completions.error();
    return std::unique_ptr<queue_set>(new direct_queues(std::move(on), std::move(*receives), std::move(*completions)));
}

}  // namespace accel::gpu
