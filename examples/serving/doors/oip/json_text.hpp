// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

/// Deepest nesting of arrays and objects that a request may have: the message, its tensors, and data of rank 8.
inline constexpr std::size_t max_json_depth = 16;

/// How deep arrays and objects are nested in a text, which need not be JSON.
[[nodiscard]] std::size_t nesting_of(std::string_view text) noexcept;

/// Behind the string whose first quote is at `at`; beyond the text where it does not end.
[[nodiscard]] std::size_t end_of_string(std::string_view text, std::size_t at) noexcept;

/// A JSON object. `invalid_argument`: it is none, or is nested too deep.
[[nodiscard]] result<nlohmann::json> parse_object(std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

/// In quotes, with bytes that are no UTF-8 replaced.
[[nodiscard]] std::string json_string(std::string_view text);

/// The member of this name; null: there is none, or `object` is no object.
[[nodiscard]] const nlohmann::json* member(const nlohmann::json& object, const char* name);

}  // namespace accel::examples::serving::oip
