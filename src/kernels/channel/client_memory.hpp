// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/protocol.hpp"
#include "kernels/kernel_memory.hpp"
#include "kernels/service_sizes.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/device/client.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::gpu {

/// The start of a GPU-resident channel: its send port and its peer.
struct client_start {
    device::detail::send_port sends;
    device::detail::completion_port completions;
    mlx5::shared_receive_queue_ref receives;
    device::detail::peer_slots_layout peer;
    bool plain_requests = false;  ///< as the peer wants them
    std::uint32_t request_key = 0;
    std::uint32_t response_key = 0;
    core::nanoseconds call_timeout{};
    mlx5::queue_place queues = mlx5::queue_place::host;  ///< of a channel with one owner
};

/// The memory of one GPU-resident channel: slots, the kernels' state, and what kernels and host exchange.
class client_memory {
  public:
    client_memory(kernel_memory& from, const core::link_geometry& shape, const service_sizes& sizes) noexcept
        : memory_(from), shape_(shape), sizes_(sizes) {}
    /// `send_wqebbs`: of the send queue, with `engine::direct`.
    [[nodiscard]] result<void> allocate(std::uint32_t send_wqebbs);
    [[nodiscard]] std::span<std::byte> requests() const noexcept;
    [[nodiscard]] std::span<std::byte> responses() const noexcept;

    /// The channel as it begins, with counters on the host: the host may use its ports until `hand_over`.
    [[nodiscard]] const device::channel_ref& prepare(const client_start& from);
    /// From here on kernels use the ports, and continue with the host's counters.
    [[nodiscard]] result<void> hand_over();
    [[nodiscard]] const device::channel_ref& channel() const noexcept { return channel_; }
    [[nodiscard]] device::detail::channel_orders& orders() const noexcept { return *orders_; }
    [[nodiscard]] const device::detail::channel_report& report() const noexcept { return *report_; }
    /// Calls that kernels have cancelled since the last look. How many: if all of `out`, there may be more.
    [[nodiscard]] std::size_t take_cancelled(std::span<call_id> out) noexcept;
    /// Once no kernel uses the channel any more: makes the report complete.
    [[nodiscard]] result<void> finish_report();

  private:
    [[nodiscard]] std::size_t kernel_bytes() const noexcept;
    void prepare_shared(const client_start& from);
    void prepare_exclusive(const client_start& from);
    void end_probe() noexcept;

    /// The queues by which the host posts and takes before a channel with one owner is handed over.
    struct probe_state {
        mlx5::shared_send_queue_state sends;
        std::vector<mlx5::ready_request> ready;
        proxy::send_queue_state proxied;
        mlx5::completion_queue_state completions;
    };

    kernel_memory& memory_;
    core::link_geometry shape_;
    service_sizes sizes_;  ///< of one session
    std::uint32_t send_wqebbs_ = 0;
    std::byte* slots_ = nullptr;
    std::byte* kernel_block_ = nullptr;
    std::vector<std::byte> content_;  ///< of `kernel_block_`, while it is the host's
    device::detail::channel_orders* orders_ = nullptr;
    device::detail::channel_report* report_ = nullptr;
    std::uint32_t* cancels_ = nullptr;         ///< of each slot: the generation of the last call cancelled
    std::vector<std::uint32_t> cancels_told_;  ///< likewise, as last looked at
    std::uint32_t cancels_seen_ = 0;           ///< the report's word, before that look
    device::channel_ref channel_;
    probe_state probe_;
};

}  // namespace accel::gpu
