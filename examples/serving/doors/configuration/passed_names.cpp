// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/passed_names.hpp"

#include "serving/doors/oip/refusal.hpp"
#include "serving/gateway/metadata_keys.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace accel::examples::serving::doors {
namespace {

/// What HTTP, gRPC and the doors use themselves (RFC 9110, RFC 9112).
constexpr std::string_view kept_names[] = {"accept",
                                           "accept-encoding",
                                           "allow",
                                           "authentication-info",
                                           "authorization",
                                           "baggage",
                                           "connection",
                                           "cookie",
                                           "cookie2",
                                           "date",
                                           "expect",
                                           "forwarded",
                                           "host",
                                           "keep-alive",
                                           "server",
                                           "set-cookie",
                                           "set-cookie2",
                                           "strict-transport-security",
                                           "te",
                                           "trailer",
                                           "traceparent",
                                           "tracestate",
                                           "transfer-encoding",
                                           "upgrade",
                                           "retry-after",
                                           "user-agent",
                                           "via",
                                           "www-authenticate",
                                           "inference-header-content-length",
                                           "origin",
                                           "location",
                                           "x-api-key",
                                           "cache-control"};
constexpr std::string_view kept_beginnings[] = {"access-control-", "content-", "cross-origin-", "grpc-",
                                                "proxy-",          "sec-",     "x-forwarded-"};

}  // namespace

result<void> add_passed_name(std::string_view name, std::vector<std::string>& to) {
    std::string key(name);
    std::ranges::transform(key, key.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (!gateway::is_metadata_key(key))
        return oip::refusal(status::invalid_argument,
                            oip::in_quotes(name) +
                                " is not a valid name of a header to pass: expected 1 to 64 letters, "
                                "digits, '-', '_' and '.'");
    const auto begins = [&key](std::string_view each) { return key.starts_with(each); };
    if (std::ranges::find(kept_names, key) != std::end(kept_names) || std::ranges::any_of(kept_beginnings, begins))
        return oip::refusal(status::invalid_argument,
                            "the header " + oip::in_quotes(key) + " cannot be passed: it is for the doors alone");
    if (std::ranges::find(to, key) != to.end()) return {};
    if (to.size() == max_metadata_entries)
        return oip::refusal(status::invalid_argument,
                            fmt::format("more than {} headers to pass are named", max_metadata_entries));
    to.push_back(std::move(key));
    return {};
}

}  // namespace accel::examples::serving::doors
