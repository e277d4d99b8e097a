// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/tensor.hpp>

#include <optional>
#include <string_view>

namespace accel::examples::serving::oip {

/// The type that the protocol calls so ("FP32"). Nothing for other names, and for BYTES (strings.hpp).
[[nodiscard]] std::optional<data_type> type_of(std::string_view name) noexcept;
/// The protocol's name; empty for a type that it does not have. Static storage.
[[nodiscard]] std::string_view name_of(const data_type& type) noexcept;

}  // namespace accel::examples::serving::oip
