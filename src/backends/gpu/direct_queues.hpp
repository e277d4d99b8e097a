#pragma once

#include "backends/gpu/service_queues.hpp"
#include "backends/gpu/service_sizes.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/receive_queue.hpp"

#include <memory>
#include <vector>

namespace accel::gpu {

/// mlx5 queues, which kernels post to and read where they lie. All are made beforehand: mapping one into a
/// GPU would wait for its kernels.
class direct_queues final : public service_queues {
  public:
    /// `listener` hears of an overrun.
    [[nodiscard]] static result<std::unique_ptr<service_queues>> create(std::shared_ptr<verbs::device> on,
                                                                        const service_sizes& sizes,
                                                                        verbs::async_listener* listener);
    [[nodiscard]] result<void> prepare(connection& place) override;
    [[nodiscard]] result<void> start(kernel_memory& with) override;
    [[nodiscard]] device::detail::send_port send_port(const connection& place) const override;
    [[nodiscard]] device::detail::completion_port completion_port() const override;
    [[nodiscard]] mlx5::shared_receive_queue_ref receives() const override { return receives_->located(); }
    [[nodiscard]] result<void> open(connection&) override { return {}; }
    [[nodiscard]] result<void> close(connection& place) override;

  private:
    direct_queues(std::shared_ptr<verbs::device> on, const service_sizes& sizes) noexcept
        : device_(std::move(on)), sizes_(sizes) {}
    [[nodiscard]] result<void> make_queues(verbs::async_listener* listener);

    std::shared_ptr<verbs::device> device_;
    service_sizes sizes_;
    std::unique_ptr<verbs::receive_queue> receives_;
    std::unique_ptr<verbs::completion_queue> completions_;
    std::vector<mlx5::send_queue_ref> sends_;
};

}  // namespace accel::gpu
