// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>

namespace accel::examples::serving::oip {

/// What HTTP calls this status: 200, 400, 404, 413, 429, 500, 501, 503 or 504.
[[nodiscard]] int http_status_of(status what) noexcept;

/// An `error` for a client: `reason` becomes its HTTP status, `sentence` what a person reads.
[[nodiscard]] error refusal(status reason, std::string sentence);

/// {"error": sentence}, with bytes that are no UTF-8 replaced.
[[nodiscard]] std::string error_document(std::string_view sentence);

/// A client's text within a sentence: in quotes, cut after 64 bytes.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace accel::examples::serving::oip
