// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"
#include "serving/doors/oip/region_part.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {

/// Where the elements of one input come from.
struct input_source {
    std::size_t index = 0;  ///< in `model_description::inputs`
    bool binary = false;    ///< its `size_bytes` lie in the binary section; else `data` holds them
    nlohmann::json data;    ///< `check_data` has found it good
};

/// A request that fits its model: each input is given once, with the model's type, shape and number of bytes.
struct infer_request {
    std::string id;
    std::vector<input_source> inputs;   ///< in the request's order, which is that of the binary section
    std::vector<region_input> regions;  ///< inputs that lie in memory of the client, each of the right size
    std::vector<output_choice> outputs;
    std::chrono::nanoseconds timeout{};  ///< 0: none was asked for
};

/// Reads the JSON head of a request, behind which `binary_bytes` of tensors follow. Fails with `invalid_argument` and a
/// sentence, or `unsupported`: sequences.
[[nodiscard]] result<infer_request> read_infer_head(std::string_view head, std::uint64_t binary_bytes,
                                                    const model_description& model);

/// The raw binary request: no JSON at all, the body is the only input. `invalid_argument`: the model has several, or
/// another size.
[[nodiscard]] result<infer_request> raw_infer_request(std::uint64_t binary_bytes, const model_description& model);

/// Where the binary section goes in a request's payload, in its order. `room` holds `model.input_bytes`.
[[nodiscard]] std::vector<std::span<std::byte>> binary_places(const infer_request& request,
                                                              const model_description& model,
                                                              std::span<std::byte> room);

/// Writes zeros between the tensors: what lies there in a slot is another request's, until somebody clears it.
void clear_gaps(const model_description& model, std::span<std::byte> room);

/// Writes the inputs that came as numbers to their places, and zeros between the tensors.
void write_json_inputs(const infer_request& request, const model_description& model, std::span<std::byte> room);

}  // namespace accel::examples::serving::oip
