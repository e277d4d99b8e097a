// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/refusal.hpp"

#include <utility>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

int http_status_of(status what) noexcept {
    switch (what) {
        case status::ok:
            return 200;
        case status::invalid_argument:
            return 400;
        case status::not_found:
            return 404;
        case status::message_too_large:
            return 413;
        case status::again:
        case status::overloaded:
            return 429;
        case status::unsupported:
            return 501;
        case status::peer_lost:
        case status::closed:
        case status::device_lost:
            return 503;
        case status::timed_out:
            return 504;
        default:
            return 500;
    }
}

error refusal(status reason, std::string sentence) {
    return {.code = reason, .native = 0, .message = std::move(sentence)};
}

std::string error_document(std::string_view sentence) {
    const nlohmann::json document = {{"error", sentence}};
    return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string in_quotes(std::string_view text) {
    constexpr std::size_t longest = 64;
    const bool cut = text.size() > longest;
    return '\'' + std::string{text.substr(0, longest)} + (cut ? "…'" : "'");
}

}  // namespace accel::examples::serving::oip
