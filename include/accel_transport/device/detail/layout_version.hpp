// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>

#include <cstddef>
#include <cstdint>

/// Host and kernel share layouts, and may have been compiled with different versions of them.
namespace accel::device::detail {

/// Goes up with every change of `service_ref`, `channel_ref` or what they point to.
inline constexpr std::uint32_t layout_version = 1;

/// The first 16 bytes of `service_ref` and `channel_ref`. They are the same in every version.
struct layout_stamp {
    std::uint32_t version = layout_version;  ///< of the host
    std::uint32_t reserved = 0;
    std::uint32_t* kernel_version = nullptr;  ///< the host's memory: where a kernel of another version tells its own
};
static_assert(sizeof(layout_stamp) == 16 && offsetof(layout_stamp, kernel_version) == 8);

/// False: this code was compiled with another version. The host is notified, and nothing else may be touched.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool is_own_version(const layout_stamp& host) noexcept {
    if (host.version == layout_version) return true;
    if (host.kernel_version != nullptr) mlx5::store_whole(host.kernel_version, layout_version);
    return false;
}

}  // namespace accel::device::detail
