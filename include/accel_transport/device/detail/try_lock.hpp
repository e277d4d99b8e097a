// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/atomics.hpp>

#include <cstdint>

/// A try-lock: the thread that has it does the work for all.
namespace accel::device::detail {

ACCEL_HOST_DEVICE inline bool try_lock(std::uint32_t* lock) noexcept {
    std::uint32_t open = 0;
    return compare_exchange(lock, open, 1);
}
ACCEL_HOST_DEVICE inline void unlock(std::uint32_t* lock) noexcept {
    store_release(lock, 0);
}

}  // namespace accel::device::detail
