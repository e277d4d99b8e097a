// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/metadata.hpp>

#include <algorithm>
#include <string_view>

namespace accel::examples::gateway {

/// A key that metadata may have.
[[nodiscard]] inline bool is_metadata_key(std::string_view text) noexcept {
    const auto may = [](char one) {
        return (one >= 'a' && one <= 'z') || (one >= '0' && one <= '9') || one == '-' || one == '_' || one == '.';
    };
    return !text.empty() && text.size() <= max_metadata_key_bytes && std::ranges::all_of(text, may);
}

}  // namespace accel::examples::gateway
