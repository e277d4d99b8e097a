// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

/// A response: JSON, and behind it tensors from where they lie.
struct infer_answer {
    std::string head;
    std::vector<std::span<const std::byte>> tensors;  ///< parts of the payload, in the order of the outputs
    std::uint64_t binary_bytes = 0;                   ///< of `tensors` together
};

/// Largest output that is written as numbers; others are asked for as binary data.
inline constexpr std::size_t max_json_output_bytes = std::size_t{16} << 20;

/// What the backend says of its payload, or, where it says nothing (`described` is empty), what the model's description
/// says. `protocol_error`: it is not what the description promises.
[[nodiscard]] result<std::vector<tensor>> answered_tensors(const model_description& model,
                                                           std::span<const tensor> described,
                                                           std::size_t payload_bytes);

/// `outputs` as `answered_tensors` gave them, all within `payload`. `invalid_argument`: an output cannot be written as
/// numbers.
[[nodiscard]] result<infer_answer> make_answer(const model_description& model, std::string_view id,
                                               std::span<const output_choice> chosen, std::span<const tensor> outputs,
                                               std::span<const std::byte> payload);

}  // namespace accel::examples::serving::oip
