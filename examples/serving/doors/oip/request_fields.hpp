// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <chrono>
#include <string>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

// What requests in JSON say beside their tensors. Each fails with `invalid_argument`.

/// "id"; empty: there is none.
[[nodiscard]] result<std::string> read_id(const nlohmann::json& document);
/// "parameters": their timeout; 0: there is none. `unsupported`: sequences.
[[nodiscard]] result<std::chrono::nanoseconds> read_parameters(const nlohmann::json& document);

}  // namespace accel::examples::serving::oip
