// SPDX-License-Identifier: Apache-2.0
#include "core/client/named_servers.hpp"

#include "core/client/connect_attempts.hpp"
#include "core/guarded.hpp"
#include "core/log.hpp"
#include "core/net/socket.hpp"

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// The server of a name at one of its addresses.
uri at_address(const uri& named, std::string address) {
    uri out = named;
    out.dns = false;
    out.name = named.host;
    out.host = std::move(address);
    return out;
}

/// The URI of one of a name's servers, from that of the name.
std::string text_of(const uri& server, std::string_view named) {
    const std::string_view options = named.substr(std::min(named.find('?'), named.size()));
    std::string out = fmt::format("{}{}", server.text(), options);
    const auto names_it = [](const auto& option) { return option.first == "server_name"; };
    if (std::ranges::any_of(server.options, names_it)) return out;
    out += options.empty() ? "?server_name=" : "&server_name=";
    for (const char each : server.name) out += each == '%' ? "%25" : std::string(1, each);
    return out;
}

result<std::vector<std::string>> texts_of_servers(std::string_view text, nanoseconds deadline,
                                                  const std::stop_token& stopped) {
    const auto hosts = parse_client_uris(text);
    if (!hosts) return hosts.error();
    const auto texts = one_host_each(text);
    if (!texts) return texts.error();
    std::vector<std::string> out;
    const auto add = [&out](std::string server) {
        if (std::ranges::find(out, server) == out.end()) out.push_back(std::move(server));
    };
    auto left = static_cast<std::size_t>(std::ranges::count_if(*hosts, &uri::dns));
    for (std::size_t i = 0; i < hosts->size(); ++i) {
        const uri& host = (*hosts)[i];
        if (!host.dns) {
            add((*texts)[i]);
            continue;
        }
        const auto found = servers_of(host, now() + share_of(deadline, left--), stopped);
        if (!found) return found.error();
        for (const uri& each : *found) add(text_of(each, (*texts)[i]));
    }
    return out;
}

}  // namespace

result<std::vector<uri>> servers_of(const uri& named, nanoseconds deadline, const std::stop_token& stopped) {
    const auto found = resolve(named.host, named.port, false, deadline, stopped);
    if (!found) return found.error();
    std::vector<uri> out;
    for (const socket_address& each : *found) {
        std::string address = numeric_host(each);
        if (address.empty() || std::ranges::find(out, address, &uri::host) != out.end()) continue;
        out.push_back(at_address(named, std::move(address)));
    }
    if (out.size() > max_hosts) {
        limited_log(named.host).warn("'{}' has {} addresses; {} are used", named.host, out.size(), max_hosts);
        std::ranges::sort(out, {}, &uri::host);  // name servers rotate their answers: the same ones each time
        out.erase(out.begin() + std::ptrdiff_t{max_hosts}, out.end());
    }
    if (out.empty()) return error{status::peer_lost, 0, fmt::format("host '{}' has no address now", named.host)};
    return out;
}

std::vector<uri> resolve_names(const std::vector<uri>& hosts, nanoseconds deadline, const std::stop_token& stopped) {
    std::vector<uri> out;
    auto left = static_cast<std::size_t>(std::ranges::count_if(hosts, &uri::dns));
    for (const uri& each : hosts) {
        if (!each.dns) {
            out.push_back(each);
            continue;
        }
        auto found = servers_of(each, now() + share_of(deadline, left--), stopped);
        if (found) {
            std::ranges::move(*found, std::back_inserter(out));
            continue;
        }
        limited_log(each.host).info("{}", found.error().message);
        out.push_back(each);
    }
    return out;
}

}  // namespace accel::core

namespace accel {

result<std::vector<std::string>> resolve_servers(std::string_view uri, std::chrono::nanoseconds timeout,
                                                 const std::stop_token& stopped) {
    return core::guarded([&] { return core::texts_of_servers(uri, core::deadline_after(timeout), stopped); });
}

}  // namespace accel
