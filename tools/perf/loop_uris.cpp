// SPDX-License-Identifier: Apache-2.0
#include "perf/loop_uris.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <unistd.h>

namespace accel::perf {
namespace {

constexpr std::array<std::string_view, 20> server_only{"workers",
                                                       "max_sessions",
                                                       "max_slots",
                                                       "max_request_bytes",
                                                       "max_response_bytes",
                                                       "max_memory_bytes",
                                                       "max_exchanges",
                                                       "max_client_sessions",
                                                       "max_client_memory_bytes",
                                                       "max_connections",
                                                       "max_client_connections",
                                                       "max_handshakes",
                                                       "memory",
                                                       "streams",
                                                       "priority_streams",
                                                       "stream_per_session",
                                                       "pin_slots",
                                                       "drain_timeout",
                                                       "authorized_keys",
                                                       "anonymous"};
constexpr std::array<std::string_view, 13> client_only{
    "slots",        "request_bytes", "response_bytes",    "connect_timeout", "connect_retry",
    "call_timeout", "close_timeout", "server_key",        "priority",        "reconnect",
    "backoff_min",  "backoff_max",   "quarantine_timeout"};

bool is_in(const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

void append(std::string& query, std::string_view pair) {
    query += query.empty() ? '?' : '&';
    query += pair;
}

/// Names of `shm` are the whole host's.
std::string own_address(std::string_view scheme) {
    if (scheme == "shm") return fmt::format("perf-{}", ::getpid());
    return scheme == "local" ? "perf" : "127.0.0.1:0";
}

bool is_loopback(std::string_view address) {
    return address.starts_with("127.") || address.starts_with("localhost:") || address.starts_with("[::1]:");
}

}  // namespace

result<loop_uris> split_for_loop(std::string_view text) {
    const bool scheme_alone = text.find("://") == std::string_view::npos;
    const std::string whole = scheme_alone ? fmt::format("{}://{}", text, own_address(text)) : std::string{text};
    const std::string base = whole.substr(0, whole.find('?'));
    std::string_view options = std::string_view{whole}.substr(std::min(whole.size(), base.size() + 1));
    loop_uris ends;
    std::string server_query;
    bool has_security = base.starts_with("local://") || base.starts_with("shm://");
    while (!options.empty()) {
        const std::string_view pair = options.substr(0, options.find('&'));
        options.remove_prefix(std::min(options.size(), pair.size() + 1));
        const std::string_view name = pair.substr(0, pair.find('='));
        has_security = has_security || name == "insecure" || name == "key_file";
        if (!is_in(client_only, name)) append(server_query, pair);
        if (!is_in(server_only, name) && name != "data_port") append(ends.client_query, pair);
    }
    if (!has_security) {
        if (!is_loopback(base.substr(base.find("://") + 3))) {
            return error{status::unauthorized, 0,
                         fmt::format("{} is reachable from other hosts: give key_file, authorized_keys and server_key "
                                     "(see accel_keys), or insecure=true",
                                     base)};
        }
        append(server_query, "insecure=true");
        append(ends.client_query, "insecure=true");
        ends.made_insecure = true;
    }
    ends.server = base + server_query;
    return ends;
}

}  // namespace accel::perf
