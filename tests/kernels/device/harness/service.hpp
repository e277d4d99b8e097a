// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel_memory.hpp"
#include "kernels/queues/queue_set.hpp"
#include "kernels/service/number_table.hpp"

#include <accel_transport/device/service.hpp>

#include <cstdint>
#include <mutex>
#include <vector>

namespace accel::tests {

/// What the device code keeps of a service whose requests a worker takes: on the host, and with places for
/// sessions that are made one by one. A place is touched when it is first taken, not before.
class harness_service {
  public:
    explicit harness_service(std::uint32_t sessions) noexcept : count_(sessions) {}
    [[nodiscard]] result<void> prepare(const gpu::queue_set& queues);
    [[nodiscard]] const device::service_ref& ref() const noexcept { return service_; }

    // Any thread.
    [[nodiscard]] result<std::uint32_t> take_place();
    /// The device code takes requests of the session from its next look on. `entry` has what it is to be
    /// told at once: sends, generations, busy marks and parts.
    void open(std::uint32_t place, const device::detail::session_entry& entry,
              const device::detail::session_offer& offer);

    // On the polling thread.
    /// Its connection is quiet. False: an exchange of it is open, and its place is lost.
    [[nodiscard]] bool close(std::uint32_t place) noexcept;
    /// After `close`, if it has been opened. On any thread if not.
    void give_place_back(std::uint32_t place) noexcept;
    [[nodiscard]] device::detail::session_entry& entry(std::uint32_t place) const noexcept {
        return service_.sessions[place];
    }
    /// 0, or a `status` and a syndrome: why it is of no more use.
    [[nodiscard]] std::uint32_t failure(std::uint32_t place) const noexcept {
        return mlx5::load_whole(&service_.session_reports[place].failure);
    }
    /// How many have failed so far.
    [[nodiscard]] std::uint32_t failures() const noexcept {
        return device::detail::load_relaxed(&service_.state->failures);
    }

  private:
    template <class Part>
    [[nodiscard]] result<Part*> make(std::size_t count);
    [[nodiscard]] std::uint32_t command(device::detail::command_kind kind, std::uint32_t place) noexcept;

    std::uint32_t count_;
    gpu::kernel_memory memory_{nullptr, nullptr};
    device::service_ref service_;
    gpu::number_table numbers_;
    device::detail::command* commands_ = nullptr;
    device::detail::session_offer* offers_ = nullptr;

    std::mutex mutex_;  ///< of what follows, and of adding numbers
    std::uint32_t commands_given_ = 0;
    std::uint32_t places_used_ = 0;  ///< ever
    std::vector<std::uint32_t> free_;
};

}  // namespace accel::tests
