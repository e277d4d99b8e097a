// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::serving::shared_memory {

/// The bytes of a text in base64 (RFC 4648, with its padding). Nothing: it is none.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);
[[nodiscard]] std::string to_base64(std::string_view bytes);

}  // namespace accel::examples::serving::shared_memory
