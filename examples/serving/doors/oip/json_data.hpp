// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

/// Says whether `data` is what a tensor of this type and shape holds: flat, or nested like the shape, and each number
/// within its type. `invalid_argument`: it is not; `unsupported`: the type has no form in JSON.
[[nodiscard]] result<void> check_data(const nlohmann::json& data, const tensor& what);

/// Writes `data`, which `check_data` has found good, to the `size_bytes(what)` of `to`. Of a string that is not longer:
/// its bytes, and zeros.
void write_data(const nlohmann::json& data, const tensor& what, std::span<std::byte> to);

/// Appends the elements as a flat JSON array. `invalid_argument`: a number is infinite or none, which JSON cannot say;
/// `unsupported`: the type has no form in JSON. Then `to` has a part of them.
[[nodiscard]] result<void> append_data(std::string& to, const tensor& what, std::span<const std::byte> elements);

}  // namespace accel::examples::serving::oip
