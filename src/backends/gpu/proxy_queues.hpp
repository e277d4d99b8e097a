#pragma once

#include "backends/gpu/service_queues.hpp"
#include "backends/gpu/service_sizes.hpp"
#include "verbs/proxy.hpp"

#include <memory>

namespace accel::gpu {

/// Rings in memory that kernels share, and a thread that posts what they put there. Kernels touch no queue of
/// the device, so queue pairs come and go with their sessions.
class proxy_queues final : public service_queues {
  public:
    [[nodiscard]] static result<std::unique_ptr<service_queues>> create(std::shared_ptr<verbs::device> on,
                                                                        const service_sizes& sizes,
                                                                        kernel_memory& memory);
    [[nodiscard]] result<void> prepare(connection&) override { return {}; }
    [[nodiscard]] result<void> start(kernel_memory&) override { return engine_->start(); }
    [[nodiscard]] device::detail::send_port send_port(const connection& place) const override;
    [[nodiscard]] device::detail::completion_port completion_port() const override;
    [[nodiscard]] result<void> open(connection& place) override;
    [[nodiscard]] result<void> close(connection& place) override;
    [[nodiscard]] core::nanoseconds cpu_time() const override;

  private:
    /// A word with a cache line of its own.
    struct alignas(128) lone_word {
        std::uint32_t value = 0;
    };
    struct alignas(128) lone_failure {
        std::uint64_t value = 0;
    };

    proxy_queues(std::shared_ptr<verbs::device> on, const service_sizes& sizes) noexcept;
    [[nodiscard]] result<void> allocate(kernel_memory& memory);
    [[nodiscard]] result<void> make_engine();
    [[nodiscard]] proxy::send_descriptor* ring_of(const connection& place) const noexcept {
        return descriptors_ + std::size_t{place.index} * ring_count_;
    }

    std::shared_ptr<verbs::device> device_;
    service_sizes sizes_;
    std::uint32_t sends_;             ///< of a queue pair
    std::uint32_t ring_count_;        ///< descriptors of a session
    std::uint32_t completion_count_;  ///< entries of their ring
    // Shared with kernels.
    proxy::send_descriptor* descriptors_ = nullptr;
    proxy::completion_entry* completions_ = nullptr;
    lone_word* released_ = nullptr;  ///< one a session
    lone_word* consumed_ = nullptr;
    lone_failure* first_failure_ = nullptr;
    std::unique_ptr<verbs::proxy_engine> engine_;
};

}  // namespace accel::gpu
