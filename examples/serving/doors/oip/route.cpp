// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/route.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace accel::examples::serving::oip {
namespace {

constexpr std::size_t max_parts = 8;

int digit_of(char c) noexcept {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string unescaped(std::string_view text) {
    if (text.find('%') == std::string_view::npos) return std::string{text};
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const int high = text[i] == '%' && i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
        const int low = high >= 0 ? digit_of(text[i + 2]) : -1;
        out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
        if (low >= 0) i += 2;
    }
    return out;
}

bool is_letter(char a, char b) noexcept {
    return (a | ' ') == b;  // whatever its case
}

/// Of "http://host/a/b", which a client may send as well (RFC 9112, 3.2.2): "/a/b".
std::string_view path_of(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!std::ranges::equal(target.substr(0, scheme.size()), scheme, is_letter)) continue;
        return target.substr(std::min(target.find_first_of("/?", scheme.size()), target.size()));
    }
    return target;
}

/// "/a/b/c" → a, b, c, without a '/' at the end; nothing: too many.
std::vector<std::string> parts_of(std::string_view target) {
    std::string_view path = path_of(target);
    path = path.substr(0, path.find('?'));
    std::vector<std::string> out;
    while (!path.empty() && path.front() == '/' && path.size() > 1) {
        path.remove_prefix(1);
        const std::size_t end = std::min(path.find('/'), path.size());
        out.push_back(unescaped(path.substr(0, end)));
        path.remove_prefix(end);
        if (out.size() > max_parts) return {};
    }
    return out;
}

std::optional<action> server_action(std::span<const std::string> parts) {
    if (parts.empty()) return action::server_metadata;
    if (parts.size() != 2) return std::nullopt;
    if (parts[0] == "models" && parts[1] == "stats") return action::all_statistics;
    if (parts[0] != "health") return std::nullopt;
    if (parts[1] == "live") return action::live;
    return parts[1] == "ready" ? std::optional{action::ready} : std::nullopt;
}

std::optional<action> model_action(std::span<const std::string> parts) {
    if (parts.empty()) return action::model_metadata;
    if (parts.size() != 1) return std::nullopt;
    if (parts[0] == "ready") return action::model_ready;
    if (parts[0] == "config") return action::model_configuration;
    if (parts[0] == "stats") return action::model_statistics;
    if (parts[0] == "generate") return action::generate;
    if (parts[0] == "generate_stream") return action::generate_stream;
    return parts[0] == "infer" ? std::optional{action::infer} : std::nullopt;
}

/// "systemsharedmemory", "cudasharedmemory", then perhaps "region" and its name, then what is asked.
std::optional<route> region_route(std::span<const std::string> parts) {
    if (parts.empty() || (parts[0] != "systemsharedmemory" && parts[0] != "cudasharedmemory")) return std::nullopt;
    route out{.on_gpu = parts[0] == "cudasharedmemory"};
    const bool named = parts.size() == 4 && parts[1] == "region" && !parts[2].empty();
    if (!named && parts.size() != 2) return std::nullopt;
    if (named) out.region = parts[2];
    const std::string& what = parts.back();
    if (what == "status")
        out.what = action::region_status;
    else if (what == "unregister")
        out.what = action::region_unregister;
    else if (what == "register" && named)
        out.what = action::region_register;
    else
        return std::nullopt;
    return out;
}

}  // namespace

result<route> find_route(std::string_view target) {
    const auto parts = parts_of(target);
    const auto nothing = [target] { return refusal(status::not_found, "there is nothing at " + in_quotes(target)); };
    if (parts.empty() || parts.front() != "v2") return nothing();
    std::span<const std::string> rest = std::span{parts}.subspan(1);
    if (const auto found = server_action(rest)) return route{.what = *found};
    if (auto found = region_route(rest)) return *std::move(found);
    if (rest.size() < 2 || rest[0] != "models") return nothing();
    const std::string& model = rest[1];
    rest = rest.subspan(2);
    if (rest.size() >= 2 && rest[0] == "versions") {
        if (rest[1] != "1")
            return refusal(status::not_found, "model " + in_quotes(model) + " has no version " + in_quotes(rest[1]));
        rest = rest.subspan(2);
    }
    if (const auto found = model_action(rest)) return route{.what = *found, .model = model};
    return nothing();
}

std::string_view method_of(action what) noexcept {
    return what >= action::infer && what != action::region_status ? "POST" : "GET";
}

}  // namespace accel::examples::serving::oip
