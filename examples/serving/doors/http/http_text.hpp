// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/door_metrics.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace accel::examples::serving::doors {

/// Statuses that the door answers with, as scrapes show them.
[[nodiscard]] std::span<const status_name> http_statuses() noexcept;

/// The words for a status of HTTP.
[[nodiscard]] std::string_view reason_of(int http_status) noexcept;

/// What stands before the body of an answer.
struct answer_header {
    int http_status = 200;
    std::uint64_t body_bytes = 0;
    std::uint64_t json_bytes = 0;  ///< of the body, where tensors follow; 0: it is JSON alone
    bool keep_alive = true;
    std::string_view more{};  ///< further header lines, each with its end
};
[[nodiscard]] std::string header_text(const answer_header& of);

/// What stands before server-sent events. Where they are not `chunked`, the connection's end is theirs.
[[nodiscard]] std::string event_header_text(bool chunked, bool keep_alive);

}  // namespace accel::examples::serving::doors
