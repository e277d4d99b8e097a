// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/reach.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::gateway {

/// One `--to`.
struct destination {
    std::string model;  ///< empty: requests without a target
    std::string uri;
};

struct settings {
    std::vector<std::string> listen;
    std::vector<destination> to;
    reach_settings reach;
    std::size_t queue = 256;  ///< requests that wait for a free slot, at most
    std::chrono::nanoseconds spin = std::chrono::microseconds{50};
    std::string metrics;
    bool json = false;
};

/// From "MODEL=URI" or "URI"; nothing where the text is neither.
[[nodiscard]] std::optional<destination> parse_destination(std::string_view text);

}  // namespace accel::examples::gateway
