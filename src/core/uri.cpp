// SPDX-License-Identifier: Apache-2.0
#include "core/uri.hpp"

#include "core/net/unix_socket.hpp"
#include "core/registry.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace accel::core {
namespace {

error bad_uri(std::string_view text, std::string_view what) {
    return {status::invalid_argument, 0,
            fmt::format("'{}' is not a valid URI: {}; expected scheme://host:port?key=value&key=value", text, what)};
}

constexpr std::size_t max_characters = 4096;
constexpr std::string_view dns_prefix = "dns+";

error too_long(std::string_view text) {
    return bad_uri(text.substr(0, 64), fmt::format("it is longer than {} characters", max_characters));
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out.push_back(text[i]);
            continue;
        }
        unsigned value = 0;
        if (i + 2 >= text.size()) return std::nullopt;
        const char* digits = text.data() + i + 1;
        const auto [end, failure] = std::from_chars(digits, digits + 2, value, 16);
        if (failure != std::errc{} || end != digits + 2) return std::nullopt;
        out.push_back(static_cast<char>(value));
        i += 2;
    }
    return out;
}

bool is_scheme(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(),
                                        [](unsigned char c) { return std::islower(c) != 0 || std::isdigit(c) != 0; });
}

/// A name or an address; in brackets an IPv6 address, with a zone if it has one (RFC 3986 3.2.2, RFC 6874).
bool is_host(std::string_view text, bool bracketed) {
    const std::string_view marks = bracketed ? ":.%-_" : ".-_";
    if (!bracketed && text == "*") return true;
    return !text.empty() && (!bracketed || text.find(':') != std::string_view::npos) &&
           std::all_of(text.begin(), text.end(), [marks](unsigned char c) {
               return (c < 0x80 && std::isalnum(c) != 0) || marks.find(static_cast<char>(c)) != std::string_view::npos;
           });
}

/// The fault of a part of a URI; empty: it has none.
using complaint = std::string;

complaint read_port(std::string_view text, uri& out) {
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, out.port);
    if (failure == std::errc{} && stop == end) return {};
    return not_a_port(text);
}

/// Splits "host:port" or "[v6]:port".
complaint split_authority(std::string_view text, uri& out) {
    const bool bracketed = text.starts_with('[');
    const auto colon = bracketed ? text.find("]:") + 1 : text.rfind(':');
    if (bracketed && colon == 0) return "an IPv6 address is written [address]:port";
    out.host = bracketed ? text.substr(1, colon - 2) : text.substr(0, colon);
    if (out.host.empty()) return "the host is missing (* is any address)";
    if (!bracketed && out.host.find(':') != std::string::npos) return "an IPv6 address needs brackets";
    if (!is_host(out.host, bracketed)) return fmt::format("'{}' is not a valid host name", out.host);
    if (colon == std::string_view::npos) return "the port is missing";
    return read_port(text.substr(colon + 1), out);
}

complaint split_options(std::string_view query, uri& out) {
    if (query.find('?') != std::string_view::npos)
        return "it has a second '?'; options follow the last host, once (%3F is '?')";
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), pair.size() + 1));
        if (pair.empty()) continue;
        const auto equals = pair.find('=');
        if (equals == 0 || equals == std::string_view::npos) return fmt::format("option '{}' is not key=value", pair);
        auto key = percent_decoded(pair.substr(0, equals));
        auto value = percent_decoded(pair.substr(equals + 1));
        if (!key || !value)
            return fmt::format("'{}' has a % without two hexadecimal digits after it (write %25 for %)",
                               pair.substr(key ? equals + 1 : 0));
        if (std::ranges::find(out.options, *key, &std::pair<std::string, std::string>::first) != out.options.end())
            return fmt::format("option {} is given twice", *key);
        out.options.emplace_back(std::move(*key), std::move(*value));
    }
    return {};
}

/// Paths, and schemes that other libraries have for Unix sockets.
bool names_a_unix_socket(std::string_view text) {
    const auto separator = text.find("://");
    const std::string_view scheme = text.substr(0, separator);
    if (separator == std::string_view::npos) return text.starts_with('/') || text.starts_with("./");
    const std::string_view rest = text.substr(separator + 3);
    const bool path = rest.starts_with('/') || rest.starts_with("./");
    return scheme == "unix" || scheme == "ipc" || (path && is_scheme_name(scheme) && !within_host(scheme));
}

/// The name of `local://` is any; that of `shm://` is one of a socket.
complaint read_name(std::string_view text, uri& out) {
    if (text.empty()) return fmt::format("{0}:// needs a name, as in {0}://digits", out.scheme);
    out.host = out.scheme == "shm" ? fmt::format("@{}", text) : std::string{text};
    if (out.scheme != "shm") return {};
    if (is_host(text, false) && text != "*" && text.size() <= max_socket_name) return {};
    return fmt::format("'{}' is not a valid name: expected 1 to {} letters, digits, '.', '-' and '_'",
                       text.substr(0, max_socket_name), max_socket_name);
}

/// Why the text has no scheme.
complaint bad_scheme(std::string_view scheme) {
    if (scheme.starts_with(dns_prefix)) return "dns+ is for channels and pools, once, in front of the scheme";
    std::string lower(scheme);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower != scheme && is_scheme(lower) ? fmt::format("schemes are lower case: {}://", lower)
                                               : "the scheme is missing";
}

}  // namespace

std::string uri::text() const {
    if (scheme == "local") return fmt::format("local://{}", host);
    if (scheme == "shm") return host_and_port(host, port);
    const bool v6 = host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", scheme, v6 ? "[" : "", host, v6 ? "]" : "", port);
}

result<uri> parse_uri(std::string_view text) {
    if (text.size() > max_characters) return too_long(text);
    if (names_a_unix_socket(text))
        return error{status::unsupported, 0,
                     fmt::format("'{}': Unix sockets are not supported; use shm://name between processes of one host, "
                                 "local://name inside "
                                 "one process, or tcp://127.0.0.1:port",
                                 text)};
    const auto separator = text.find("://");
    if (separator == std::string_view::npos) return bad_uri(text, "the scheme is missing");
    if (!is_scheme(text.substr(0, separator))) return bad_uri(text, bad_scheme(text.substr(0, separator)));
    uri out;
    out.scheme = text.substr(0, separator);
    if (!is_scheme_name(out.scheme)) return unknown_scheme(out.scheme);
    std::string_view rest = text.substr(separator + 3);
    const auto question = rest.find('?');
    const std::string_view authority = rest.substr(0, question);
    const std::string_view query = question == std::string_view::npos ? "" : rest.substr(question + 1);
    if (authority.find(',') != std::string_view::npos)
        return bad_uri(text, "only channels and pools on the host take several hosts; give a server several URIs");
    if (within_host(out.scheme)) {
        if (const complaint wrong = read_name(authority, out); !wrong.empty()) return bad_uri(text, wrong);
    } else if (const complaint wrong = split_authority(authority, out); !wrong.empty()) {
        return bad_uri(text, wrong);
    }
    if (const complaint wrong = split_options(query, out); !wrong.empty()) return bad_uri(text, wrong);
    return out;
}

result<uri> parse_client_uri(std::string_view text) {
    const bool dns = text.starts_with(dns_prefix);
    auto out = parse_uri(dns ? text.substr(dns_prefix.size()) : text);
    if (!out) return out;
    out->dns = dns;
    if (within_host(out->scheme)) {
        if (dns) return bad_uri(text, fmt::format("dns+ needs a host, and {}:// has none", out->scheme));
        return out;
    }
    if (out->host == "*")
        return bad_uri(text, "* is for servers, which listen on every address; a client names its server's host");
    if (out->port == 0)
        return bad_uri(text,
                       "port 0 is for servers, which take any free port; a client names its server's port, which "
                       "server::endpoints() returns");
    return out;
}

result<std::vector<uri>> parse_client_uris(std::string_view text) {
    const auto each = one_host_each(text);
    if (!each) return each.error();
    std::vector<uri> out;
    for (const std::string& one : *each) {
        auto parsed = parse_client_uri(one);
        if (!parsed) return parsed.error();
        out.push_back(std::move(*parsed));
    }
    return out;
}

std::string not_a_port(std::string_view text) {
    return fmt::format("port '{}' is not a number from 0 to 65535", text);
}

result<std::vector<std::string>> one_host_each(std::string_view text) {
    if (text.size() > max_characters) return too_long(text);
    const auto separator = text.find("://");
    const std::size_t begin = separator == std::string_view::npos ? text.size() : separator + 3;
    const std::size_t end = std::min(text.find('?', begin), text.size());
    std::string_view hosts = text.substr(begin, end - begin);
    std::vector<std::string> out;
    for (;;) {
        const std::size_t comma = hosts.find(',');
        const bool only = comma == std::string_view::npos && out.empty();
        if (hosts.substr(0, comma).empty() && !only) return bad_uri(text, "the list has an empty host");
        if (out.size() == max_hosts) return bad_uri(text, fmt::format("it has more than {} hosts", max_hosts));
        out.push_back(fmt::format("{}{}{}", text.substr(0, begin), hosts.substr(0, comma), text.substr(end)));
        if (comma == std::string_view::npos) return out;
        hosts.remove_prefix(comma + 1);
    }
}

}  // namespace accel::core
