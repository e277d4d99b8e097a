#pragma once

#include <accel_transport/device/placement.hpp>

#include <cstddef>
#include <span>

namespace accel::verbs {

using wire::extension_head;
using wire::placement;
using wire::placement_extension;
using wire::placement_type;

/// As `wire::find_placement`.
[[nodiscard]] inline bool find_placement(std::span<const std::byte> extensions, placement& out) noexcept {
    return wire::find_placement(extensions.data(), extensions.size(), out);
}

}  // namespace accel::verbs
