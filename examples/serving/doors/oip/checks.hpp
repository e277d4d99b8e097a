// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace accel::examples::serving::oip {

// What a request may be wrong in, whichever protocol it came by: the same sentences for all of them.

/// Longest id of a request, which its answer repeats.
inline constexpr std::size_t max_id_bytes = 256;
/// Longest timeout that a request may ask for.
inline constexpr std::uint64_t longest_timeout_us = 3'600'000'000;

/// `invalid_argument`: "input 'x': what".
[[nodiscard]] error mistake_in(const named_tensor& input, const std::string& what);

/// Their places in the model's lists. `invalid_argument`: it has none of this name.
[[nodiscard]] result<std::size_t> find_input(const model_description& model, std::string_view name);
[[nodiscard]] result<std::size_t> find_output(const model_description& model, std::string_view name);

/// `invalid_argument`: it is not the input's type.
[[nodiscard]] result<void> check_datatype(const named_tensor& input, std::string_view name);

/// `not_found`: neither 1, the only version, nor empty.
[[nodiscard]] result<void> check_version(std::string_view model, std::string_view version);

// The rest of the sentences.
[[nodiscard]] error other_shape(const named_tensor& input, std::span<const std::uint64_t> said);
[[nodiscard]] error too_many_bytes(const named_tensor& input);
/// A tensor of BYTES does not have so many elements.
[[nodiscard]] error other_strings(const named_tensor& input, std::uint64_t elements);
[[nodiscard]] error negative_dimension(const named_tensor& input);
[[nodiscard]] error given_twice(const named_tensor& input);
[[nodiscard]] error inputs_lacking(std::size_t given, const model_description& model);
[[nodiscard]] error output_twice();
[[nodiscard]] error bad_region_part();
/// Says whether this input may have so many bytes, of which `what` speaks; `shape` is that of the request.
/// `invalid_argument`: another number than the shape has, or, of BYTES, than fit.
[[nodiscard]] result<void> check_bytes(const named_tensor& input, const tensor& shape, std::uint64_t bytes,
                                       const std::string& what);
[[nodiscard]] error no_classification();
[[nodiscard]] error no_sequences();
[[nodiscard]] error bad_timeout();
[[nodiscard]] error bad_priority();
[[nodiscard]] error no_model(std::string_view name);
/// One answer is asked for, and the model answers in parts.
[[nodiscard]] error answers_in_parts(std::string_view model);

}  // namespace accel::examples::serving::oip
