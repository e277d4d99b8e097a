// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/shared_memory/region.hpp"

#include <accel_transport/context.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace accel::examples::serving::shared_memory {

/// True: a name for shm_open that stays in its folder: letters, digits, '.', '_' and '-' behind at most one '/', and no
/// '.' at the beginning.
[[nodiscard]] bool is_shared_name(std::string_view key) noexcept;

/// `bytes` from `offset` on of the shared memory object `key`. It is copied with system calls, which see its true
/// length. With `lent_by`, channels of that context may read it in place, from a guarded mapping.
/// `invalid_argument`: no good name, no such object, it is too short, or it belongs to another user and is not open to
/// all.
[[nodiscard]] result<std::shared_ptr<region>> open_system_region(std::string_view key, std::uint64_t offset,
                                                                 std::uint64_t bytes, std::unique_ptr<claim> share,
                                                                 context* lent_by);

}  // namespace accel::examples::serving::shared_memory
