// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/reach.hpp"

#include "serving/gateway/metadata_keys.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace accel::examples::gateway {

std::optional<balance> parse_balance(std::string_view text) noexcept {
    if (text == "round-robin") return balance::round_robin;
    if (text == "least-loaded") return balance::least_loaded;
    if (text == "sticky") return balance::sticky;
    return std::nullopt;
}

/// FNV-1a.
std::uint64_t number_of(std::string_view text) noexcept {
    std::uint64_t out = 0xcbf29ce484222325U;
    for (const char each : text) out = (out ^ static_cast<unsigned char>(each)) * 0x100000001b3U;
    return out;
}

bool read_sticky_key(std::string_view text, reach_settings& to) {
    constexpr std::string_view named = "metadata:";
    std::string name{text.substr(std::min(named.size(), text.size()))};
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (text == "session")
        to.key = sticky_key::session;
    else if (text == "trace")
        to.key = sticky_key::trace;
    else if (text.starts_with(named) && is_metadata_key(name))
        to.key = sticky_key::metadata;
    else
        return false;
    to.key_name = to.key == sticky_key::metadata ? std::move(name) : std::string{};
    return true;
}

}  // namespace accel::examples::gateway
