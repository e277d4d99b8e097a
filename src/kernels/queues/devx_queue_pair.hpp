// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"
#include "verbs/connected_queue.hpp"
#include "verbs/device.hpp"

#include <accel_transport/detail/mlx5/completion_queue.hpp>
#include <accel_transport/detail/mlx5/send_queue.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

struct mlx5dv_devx_obj;
struct mlx5dv_devx_uar;
struct mlx5dv_devx_umem;

namespace accel::gpu {

namespace devx {
class command;
struct functions;
}  // namespace devx

/// Where queues lie: whole pages, of a GPU or of the host, which stay until the queues have gone.
struct queue_memory {
    std::span<std::byte> bytes;
    core::accelerator_device* gpu = nullptr;  ///< whose memory it is; null: the host's
};

/// A queue pair that only sends, and the completion queue of its sends, made by commands to an mlx5 adapter's firmware
/// (DevX) in memory of the caller's choice. Where that is a GPU's, a kernel that posts need not wait for the bus. It
/// has a doorbell page of its own. Others post to it and take its completions; its failures are completions, and
/// nothing else tells of them.
class devx_queue_pair final : public verbs::connected_queue {
  public:
    /// The size of the memory that `sends` work requests of one WQEBB take.
    [[nodiscard]] static std::size_t memory_bytes(std::uint32_t sends) noexcept;
    /// The content that this memory needs before `create`.
    [[nodiscard]] static std::vector<std::byte> initial_memory(std::uint32_t sends);
    /// `unsupported`, with the reason: the adapter, its driver or libmlx5 has no DevX, or does not take the memory.
    [[nodiscard]] static result<std::unique_ptr<devx_queue_pair>> create(std::shared_ptr<verbs::device> on,
                                                                         ibv_pd& domain, const queue_memory& memory,
                                                                         std::uint32_t sends);

    void describe(verbs::endpoint& out) const noexcept override;
    [[nodiscard]] result<void> connect(const verbs::endpoint& peer, const verbs_options& options) override;
    [[nodiscard]] result<void> reset() override;
    [[nodiscard]] std::uint32_t number() const noexcept override { return sends_.queue_pair; }

    /// Without its counters.
    [[nodiscard]] const mlx5::send_queue_ref& sends() const noexcept { return sends_; }
    /// Likewise. There is no event: nobody may arm it.
    [[nodiscard]] const mlx5::completion_queue_ref& completions() const noexcept { return completions_; }

  private:
    struct remover {
        const devx::functions* with = nullptr;
        void operator()(mlx5dv_devx_umem* memory) const noexcept;
        void operator()(mlx5dv_devx_uar* page) const noexcept;
        void operator()(mlx5dv_devx_obj* object) const noexcept;
    };
    template <class Object>
    using handle = std::unique_ptr<Object, remover>;
    struct address_path;

    devx_queue_pair(std::shared_ptr<verbs::device> on, ibv_pd& domain, const devx::functions& with,
                    std::uint32_t first_psn) noexcept;
    [[nodiscard]] result<void> take_memory(const queue_memory& memory);
    [[nodiscard]] result<void> take_doorbell_page();
    [[nodiscard]] result<void> make_completion_queue();
    [[nodiscard]] result<void> make_queue_pair();
    void locate(std::span<std::byte> memory) noexcept;
    [[nodiscard]] result<void> modify(devx::command& step, std::string_view what);
    [[nodiscard]] result<void> to_init();
    [[nodiscard]] result<void> to_ready_to_receive(const verbs::endpoint& peer);
    [[nodiscard]] result<void> to_ready_to_send(const verbs_options& options);
    /// Where packets to the peer go.
    [[nodiscard]] result<void> put_path(const verbs::endpoint& peer, devx::command& step) const;

    std::shared_ptr<verbs::device> device_;
    ibv_pd* domain_;
    const devx::functions* with_;
    std::uint32_t first_psn_;
    bool is_reset_ = true;
    std::uint32_t log_size_ = 0;
    // Destroyed in the opposite order.
    handle<mlx5dv_devx_umem> memory_;
    handle<mlx5dv_devx_uar> page_;
    handle<mlx5dv_devx_obj> completion_queue_;
    handle<mlx5dv_devx_obj> queue_pair_;
    mlx5::send_queue_ref sends_;
    mlx5::completion_queue_ref completions_;
};

}  // namespace accel::gpu
