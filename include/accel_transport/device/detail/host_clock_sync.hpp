// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/device/clock.hpp>

#include <cstdint>

/// Ticks of the host's clock, which kernels compare with their own clock.
namespace accel::device::detail {

/// Until the kernels' clock has been compared with it.
inline constexpr std::int64_t unknown_offset = INT64_MIN;

/// A deadline that never comes: no sum with a clock's reading overflows.
inline constexpr std::int64_t never_ns = std::int64_t{1} << 62;

/// The state between two looks.
struct host_clock_state {
    std::uint32_t tick_looked_at = 0;
    std::uint32_t clock_seen = 0;  ///< the last tick that was of use; 0: none yet
    std::int64_t last_look = 0;
    std::int64_t clock_set_at = 0;
    std::int64_t clock_offset = unknown_offset;  ///< from `clock_ns` to the clock that deadlines are on
};

/// A tick that is read soon gives the difference of the two clocks. The longer ago the last one was, the more
/// the clocks may have drifted, and the less exact a tick may be. `Ref` has the state, orders and report of a
/// service or a channel.
template <class Ref>
ACCEL_HOST_DEVICE inline void sync_host_clock(const Ref& ref) noexcept {
    constexpr std::int64_t soon_ns = 100'000;
    constexpr std::int64_t drift_shift = 10;  // a thousandth: no clock is that bad
    auto& state = *ref.state;
    const std::int64_t before = state.last_look;
    const std::uint32_t tick = mlx5::load_flag(&ref.orders->clock_tick);
    state.last_look = clock_ns();
    if (tick == state.tick_looked_at) return;
    state.tick_looked_at = tick;
    const std::int64_t age = state.last_look - state.clock_set_at;
    if (state.last_look - before > soon_ns + (age >> drift_shift)) return;
    mlx5::store_whole(&state.clock_offset, mlx5::load_whole(&ref.orders->clock_ns) - state.last_look);
    state.clock_set_at = state.last_look;
    state.clock_seen = tick;
    mlx5::store_whole(&ref.report->clock_seen, tick);
}

}  // namespace accel::device::detail
