// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device_names.hpp"

#include <accel_transport/device/detail/wire/response_target.hpp>

#include <cstddef>
#include <span>

namespace accel::verbs {

using wire::extension_head;
using wire::response_target;
using wire::response_target_extension;
using wire::response_target_type;

/// As `wire::find_response_target`.
[[nodiscard]] inline bool find_response_target(std::span<const std::byte> extensions, response_target& out) noexcept {
    return wire::find_response_target(extensions.data(), extensions.size(), out);
}

}  // namespace accel::verbs
