// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace accel::examples::serving::oip {

/// A decimal number without sign or blanks; nothing for other texts, and beyond 64 bits.
[[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view text) noexcept;

/// What a request's body consists of: JSON, then tensors.
struct body_plan {
    std::uint64_t json_bytes = 0;
    std::uint64_t binary_bytes = 0;

    /// No JSON at all: the body is the only input.
    [[nodiscard]] bool is_raw() const noexcept { return json_bytes == 0 && binary_bytes > 0; }
};

/// `header_length` is the field Inference-Header-Content-Length, where the request has it. `invalid_argument`: it is no
/// number up to `body_bytes`.
[[nodiscard]] result<body_plan> plan_body(std::uint64_t body_bytes, std::optional<std::string_view> header_length);

/// Checks the lengths of a body against what this model takes: `message_too_large`. Tensors that follow JSON are not
/// checked here, because the JSON tells what is wrong with them.
[[nodiscard]] result<void> check_body(const body_plan& plan, const model_description& model, std::uint64_t max_json);

/// Bytes of all input tensors, without what lies between them: the most that a binary section may have.
[[nodiscard]] std::uint64_t binary_input_bytes(const model_description& model) noexcept;

/// The longest JSON text that a request for this model may need, at most `limit`.
[[nodiscard]] std::uint64_t json_input_bytes(const model_description& model, std::uint64_t limit) noexcept;

}  // namespace accel::examples::serving::oip
