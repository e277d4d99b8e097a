// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/infer_head.hpp"
#include "serving/doors/oip/model_description.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace accel::examples::serving::oip {

// Triton's generate extension: inputs and outputs are fields of a JSON object, by their names.

/// Reads a request, but not the elements in it: the result has views of `text`. Fields are inputs, but for "id" and
/// "parameters"; others are left out. An input is numbers or strings, flat or nested, or one alone where it has one
/// element; an input that is `text` is a string, and zeros after it. `invalid_argument`.
[[nodiscard]] result<infer_request> read_generate(std::string_view text, const model_description& model);

/// A response, or a part of one. `outputs` as `answered_tensors` gave them, all within `payload`. `invalid_argument`:
/// an output has no form in JSON.
[[nodiscard]] result<std::string> generate_document(const model_description& model, std::string_view id,
                                                    std::span<const tensor> outputs,
                                                    std::span<const std::byte> payload);

/// A document as a server-sent event.
[[nodiscard]] std::string event_of(std::string_view document);

}  // namespace accel::examples::serving::oip
