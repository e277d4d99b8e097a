// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel_memory.hpp"
#include "kernels/service_sizes.hpp"

#include <accel_transport/device/service.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::gpu {

/// The memory of one service: slots, the kernels' state, and what kernels and host exchange.
class service_memory {
  public:
    service_memory(kernel_memory& from, const service_sizes& sizes) noexcept : memory_(from), sizes_(sizes) {}
    [[nodiscard]] result<void> allocate();
    /// The slots of one session: requests, or responses.
    [[nodiscard]] std::span<std::byte> requests(std::uint32_t session) const noexcept;
    [[nodiscard]] std::span<std::byte> responses(std::uint32_t session) const noexcept;

    /// Writes the kernels' initial state. `sends` has one for each session; `completions` and `receives` are
    /// the service's.
    [[nodiscard]] result<void> prepare(std::span<const device::detail::send_port> sends,
                                       const device::detail::completion_port& completions,
                                       const mlx5::shared_receive_queue_ref& receives);
    /// The same for `service_sizes::exclusive`. `places` has the queues of each session.
    [[nodiscard]] result<void> prepare_exclusive(std::span<const device::detail::exclusive_session> places,
                                                 device::detail::engine by, mlx5::queue_place queues);
    [[nodiscard]] const device::service_ref& service() const noexcept { return service_; }

    // The host's part.
    [[nodiscard]] device::detail::session_offer& offer(std::uint32_t session) const noexcept {
        return offers_[session];
    }
    [[nodiscard]] device::detail::session_report& report_of(std::uint32_t session) const noexcept {
        return session_reports_[session];
    }
    [[nodiscard]] const device::detail::report_layout& report() const noexcept { return *report_; }
    [[nodiscard]] device::detail::orders_layout& orders() const noexcept { return *orders_; }
    /// News of a session's calls for kernels: the generation of the last that was cancelled, one a slot, and
    /// behind them other than 0 when the client has left.
    [[nodiscard]] std::span<std::uint32_t> cancels(std::uint32_t session) const noexcept {
        const std::size_t words = sizes_.slots + std::size_t{1};
        return {cancels_ + session * words, words};
    }
    /// Gives a command; returns its number. One thread at a time.
    std::uint32_t command(device::detail::command_kind kind, std::uint32_t session) noexcept;

  private:
    void name_shared_parts() noexcept;
    std::uint32_t order(device::detail::command_kind kind, std::uint32_t session) noexcept;

    kernel_memory& memory_;
    service_sizes sizes_;
    std::byte* slots_ = nullptr;
    device::detail::orders_layout* orders_ = nullptr;
    device::detail::report_layout* report_ = nullptr;
    device::detail::command* commands_ = nullptr;
    device::detail::session_offer* offers_ = nullptr;
    device::detail::session_report* session_reports_ = nullptr;
    std::uint32_t* session_orders_ = nullptr;  ///< where sessions have one owner each
    std::uint32_t* cancels_ = nullptr;
    std::uint32_t command_count_ = 0;
    std::uint32_t commands_given_ = 0;
    device::service_ref service_;
};

}  // namespace accel::gpu
