// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/json_text.hpp"

#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::oip {

std::size_t nesting_of(std::string_view text) noexcept {
    std::size_t depth = 0;
    std::size_t deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\') ++i;  // what follows ends no string
        if (c == '"') in_string = !in_string;
        if (in_string) continue;
        if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
        if ((c == ']' || c == '}') && depth > 0) --depth;
    }
    return deepest;
}

std::size_t end_of_string(std::string_view text, std::size_t at) noexcept {
    for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
    return at + 1;
}

result<nlohmann::json> parse_object(std::string_view text) {
    if (nesting_of(text) > max_json_depth)
        return refusal(status::invalid_argument, "the JSON is nested deeper than 16 levels");
    nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
    if (document.is_discarded()) return refusal(status::invalid_argument, "the request is not JSON");
    if (!document.is_object()) return refusal(status::invalid_argument, "the request is not a JSON object");
    return document;
}

bool is_utf8(std::string_view text) {
    try {
        static_cast<void>(nlohmann::json(text).dump());
        return true;
    } catch (const nlohmann::json::type_error&) {
        return false;
    }
}

std::string json_string(std::string_view text) {
    const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    if (std::ranges::all_of(text, is_plain)) return '"' + std::string{text} + '"';
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const nlohmann::json* member(const nlohmann::json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
}

}  // namespace accel::examples::serving::oip
