#include "core/uri.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace accel::core {
namespace {

error bad_uri(std::string_view text, std::string_view what) {
    return {status::invalid_argument, 0,
            fmt::format("'{}': {}; a URI reads scheme://host:port?key=value&key=value", text, what)};
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
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::islower(c) != 0 || std::isdigit(c) != 0;
    });
}

/// A name or an address; in brackets an IPv6 address, with a zone if it has one (RFC 3986 3.2.2, RFC 6874).
bool is_host(std::string_view text, bool bracketed) {
    const std::string_view marks = bracketed ? ":.%-_" : ".-_*";
    return !text.empty() && (!bracketed || text.find(':') != std::string_view::npos) &&
           std::all_of(text.begin(), text.end(), [marks](unsigned char c) {
               return (c < 0x80 && std::isalnum(c) != 0) ||
                      marks.find(static_cast<char>(c)) != std::string_view::npos;
           });
}

/// Splits "host:port" or "[v6]:port"; false if the port is missing or no number.
bool split_authority(std::string_view text, uri& out) {
    std::string_view port;
    const bool bracketed = text.starts_with('[');
    if (bracketed) {
        const auto close = text.find("]:");
        if (close == std::string_view::npos) return false;
        out.host = text.substr(1, close - 1);
        port = text.substr(close + 2);
    } else {
        const auto colon = text.rfind(':');
        if (colon == std::string_view::npos) return false;
        out.host = text.substr(0, colon);
        port = text.substr(colon + 1);
    }
    if (!is_host(out.host, bracketed)) return false;
    const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    return failure == std::errc{} && end == port.data() + port.size();
}

bool split_options(std::string_view query, uri& out) {
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), pair.size() + 1));
        if (pair.empty()) continue;
        const auto equals = pair.find('=');
        if (equals == 0 || equals == std::string_view::npos) return false;
        auto key = percent_decoded(pair.substr(0, equals));
        auto value = percent_decoded(pair.substr(equals + 1));
        if (!key || !value) return false;
        out.options.emplace_back(std::move(*key), std::move(*value));
    }
    return true;
}

}  // namespace

std::string uri::text() const {
    if (scheme == "local") return fmt::format("local://{}", host);
    const bool v6 = host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", scheme, v6 ? "[" : "", host, v6 ? "]" : "", port);
}

result<uri> parse_uri(std::string_view text) {
    if (text.size() > 4096) return bad_uri(text.substr(0, 64), "longer than 4096 characters");
    const auto separator = text.find("://");
    if (separator == std::string_view::npos || !is_scheme(text.substr(0, separator))) {
        return bad_uri(text, "no scheme");
    }
    uri out;
    out.scheme = text.substr(0, separator);
    std::string_view rest = text.substr(separator + 3);
    const auto question = rest.find('?');
    const std::string_view authority = rest.substr(0, question);
    const std::string_view query = question == std::string_view::npos ? "" : rest.substr(question + 1);
    if (out.scheme == "local") {
        if (authority.empty()) return bad_uri(text, "local:// needs a name, as in local://digits");
        out.host = authority;
    } else if (!split_authority(authority, out)) {
        return bad_uri(text, "no host:port (an IPv6 host goes in brackets)");
    }
    if (!split_options(query, out)) return bad_uri(text, "options are not key=value");
    return out;
}

}  // namespace accel::core
