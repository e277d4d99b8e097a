// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/configuration/passed_names.hpp"

#include "serving/doors/oip/refusal.hpp"
#include "serving/gateway/metadata_keys.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace accel::examples::serving::doors {
namespace {

/// What HTTP, caches, gRPC and the doors use themselves (RFC 9110 to 9112), and what proxies say of a client.
constexpr std::string_view kept_names[] = {"accept",
                                           "accept-encoding",
                                           "accept-patch",
                                           "accept-post",
                                           "accept-ranges",
                                           "age",
                                           "allow",
                                           "alt-svc",
                                           "authentication-info",
                                           "authorization",
                                           "baggage",
                                           "cache-control",
                                           "clear-site-data",
                                           "connection",
                                           "cookie",
                                           "cookie2",
                                           "date",
                                           "early-data",
                                           "endpoint-load-metrics-bin",
                                           "etag",
                                           "expect",
                                           "expires",
                                           "forwarded",
                                           "host",
                                           "http2-settings",
                                           "inference-header-content-length",
                                           "keep-alive",
                                           "last-modified",
                                           "lb-cost-bin",
                                           "lb-token",
                                           "link",
                                           "location",
                                           "max-forwards",
                                           "origin",
                                           "pragma",
                                           "priority",
                                           "range",
                                           "refresh",
                                           "retry-after",
                                           "server",
                                           "set-cookie",
                                           "set-cookie2",
                                           "strict-transport-security",
                                           "te",
                                           "traceparent",
                                           "tracestate",
                                           "trailer",
                                           "transfer-encoding",
                                           "upgrade",
                                           "user-agent",
                                           "vary",
                                           "via",
                                           "warning",
                                           "www-authenticate",
                                           "x-api-key",
                                           "x-http-method-override",
                                           "x-original-url",
                                           "x-real-ip",
                                           "x-rewrite-url",
                                           "x-sendfile"};
constexpr std::string_view kept_beginnings[] = {"access-control-", "content-", "cross-origin-", "grpc-",       "if-",
                                                "proxy-",          "sec-",     "x-accel-",      "x-forwarded-"};

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
                            "the header " + oip::in_quotes(key) + " cannot be passed: the doors use it themselves");
    if (std::ranges::find(to, key) != to.end()) return {};
    if (to.size() == max_metadata_entries)
        return oip::refusal(status::invalid_argument,
                            fmt::format("--pass-header names more than {} headers", max_metadata_entries));
    to.push_back(std::move(key));
    return {};
}

}  // namespace accel::examples::serving::doors
