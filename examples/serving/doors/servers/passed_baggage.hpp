// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/trace.hpp>

#include <algorithm>
#include <string_view>

namespace accel::examples::serving::doors {

/// The value of a client's field `baggage` (W3C Baggage) that goes on to the model's server and back; empty: it is
/// dropped, because it is too long, or no text of ASCII.
[[nodiscard]] inline std::string_view passed_baggage(std::string_view value) {
    const auto is_text = [](char one) { return one >= ' ' && one <= '~'; };
    return value.size() <= max_baggage_bytes && std::ranges::all_of(value, is_text) ? value : std::string_view{};
}

}  // namespace accel::examples::serving::doors
