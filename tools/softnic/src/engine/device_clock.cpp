// SPDX-License-Identifier: Apache-2.0
#include "engine/device_clock.hpp"

#include <endian.h>
#include <rdma/mlx5-abi.h>
#include <time.h>

namespace accel::softnic {
namespace {

/// The device's clock stands still where its thread did, so it falls behind the wall clock.
constexpr std::uint64_t compare_interval_ns = 10'000'000;

constexpr std::uint64_t overflow_period_ns = 1'000'000'000;

std::uint64_t wall_clock_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

device_clock::device_clock(int command_file) : register_(command_file, register_page), wall_(command_file, wall_page) {}

void device_clock::show(std::uint64_t now_ns) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(register_.data()), htobe64(now_ns), __ATOMIC_RELEASE);
    if (now_ns >= compare_at_) compare_with_wall(now_ns);
}

/// Readers try again while `sign` is odd or changes. A cycle is a nanosecond.
void device_clock::compare_with_wall(std::uint64_t now_ns) {
    compare_at_ = now_ns + compare_interval_ns;
    auto* info = reinterpret_cast<mlx5_ib_clock_info*>(wall_.data());
    const std::uint32_t before = __atomic_load_n(&info->sign, __ATOMIC_RELAXED);
    __atomic_store_n(&info->sign, before | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, __ATOMIC_SEQ_CST);
    info->nsec = wall_clock_ns();
    info->cycles = now_ns;
    info->frac = 0;
    info->mult = 1;
    info->shift = 0;
    info->mask = ~std::uint64_t{0};
    info->overflow_period = overflow_period_ns;
    __atomic_store_n(&info->sign, before + 2, __ATOMIC_RELEASE);
}

}  // namespace accel::softnic
