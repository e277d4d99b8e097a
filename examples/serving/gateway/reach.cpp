// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/reach.hpp"

namespace accel::examples::gateway {

std::optional<balance> parse_balance(std::string_view text) noexcept {
    if (text == "round-robin") return balance::round_robin;
    if (text == "least-loaded") return balance::least_loaded;
    if (text == "sticky") return balance::sticky;
    return std::nullopt;
}

}  // namespace accel::examples::gateway
