// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/settings.hpp"

#include <accel_transport/target.hpp>

namespace accel::examples::gateway {

/// A '=' behind the scheme is one of the URI's own options.
std::optional<destination> parse_destination(std::string_view text) {
    const std::size_t scheme = text.find("://");
    if (scheme == std::string_view::npos || scheme == 0) return std::nullopt;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals > scheme) return destination{{}, std::string(text)};
    const std::string_view model = text.substr(0, equals);
    const std::string_view uri = text.substr(equals + 1);
    if (!is_target_name(model) || uri.starts_with("://")) return std::nullopt;
    return destination{std::string(model), std::string(uri)};
}

}  // namespace accel::examples::gateway
