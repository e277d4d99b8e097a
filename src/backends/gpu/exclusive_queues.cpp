// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue_set.hpp"

#include <algorithm>
#include <utility>

namespace accel::gpu {
namespace {

class exclusive_queues final : public queue_set {
  public:
    explicit exclusive_queues(std::shared_ptr<verbs::device> on) noexcept : device_(std::move(on)) {}

    [[nodiscard]] queue_depths depths() const noexcept override { return {}; }
    [[nodiscard]] device::detail::completion_port completion_port() const override { return {}; }
    [[nodiscard]] result<void> prepare(session_queue& queue, kernel_memory& memory) override;
    void discard(session_queue& queue) noexcept override {
        queue.queue_pair.reset();
        queue.completions.reset();
    }
    [[nodiscard]] result<void> open(session_queue&) override { return {}; }
    [[nodiscard]] result<void> close(session_queue& queue) override { return queue.queue_pair->reset(); }
    [[nodiscard]] result<void> start(kernel_memory&) override { return {}; }

    [[nodiscard]] int event_fd() const noexcept override { return -1; }
    [[nodiscard]] bool arm() noexcept override { return false; }
    void disarm() noexcept override {}

  private:
    std::shared_ptr<verbs::device> device_;
};

result<void> exclusive_queues::prepare(session_queue& queue, kernel_memory& memory) {
    verbs::queue_sizes wanted;
    wanted.send = std::min(queue.sends, static_cast<std::uint32_t>(device_->limits().max_qp_wr));
    // When a queue pair fails, unsignalled requests complete too.
    auto completions = verbs::completion_queue::create(device_, wanted.send, queue.listener);
    if (!completions) return completions.error();
    queue.completions = std::move(*completions);
    auto made = verbs::queue_pair::create(device_, queue.domain->get(), queue.completions->get(), nullptr, wanted,
                                          queue.listener);
    if (!made) return made.error();
    queue.sends = wanted.send;
    queue.queue_pair.emplace(std::move(*made));
    queue.port.by = device::detail::engine::direct;
    queue.port.direct.queue = queue.queue_pair->located()->sends;
    queue.port.direct.queue.state = nullptr;
    const mlx5::completion_queue_ref& at = queue.completions->located();
    if (auto entries = memory.share(at.entries, std::size_t{at.count} * at.entry_bytes); !entries) return entries;
    if (auto record = memory.share(at.doorbell_record, 2 * sizeof(mlx5::be32)); !record) return record;
    return share_sends(memory, queue.port.direct.queue);
}

}  // namespace

result<std::unique_ptr<queue_set>> make_exclusive_queues(std::shared_ptr<verbs::device> on) {
    return std::unique_ptr<queue_set>(new exclusive_queues(std::move(on)));
}

}  // namespace accel::gpu
