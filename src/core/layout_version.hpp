// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/layout_version.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace accel::core {

/// Refuses code that was compiled against another version of the device headers. `who` begins the sentence.
[[nodiscard]] inline error other_version(std::string_view who, std::uint32_t version) {
    return {status::unsupported, 0,
            fmt::format("gpu: {} was compiled with version {} of the headers in accel_transport/device, and this "
                        "library with version {}; compile both with the same",
                        who, version, device::detail::layout_version)};
}

}  // namespace accel::core
