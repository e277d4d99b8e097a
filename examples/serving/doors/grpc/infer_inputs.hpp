// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/infer_message.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"
#include "serving/doors/oip/region_part.hpp"
#include "serving/doors/oip/request_payload.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace accel::examples::serving::wire {

/// Where the elements of one input come from.
struct wire_input {
    std::size_t index = 0;  ///< in `model_description::inputs`
    bool raw = false;       ///< `from` is its elements; else the InferInputTensor that holds them as numbers
    cursor from;
};

/// A message that fits its model: each input is given once, with the model's type and a shape and a number of bytes
/// that it takes.
struct wire_request {
    std::vector<wire_input> inputs;
    std::vector<oip::region_input> regions;   ///< inputs that lie in memory of the client, each of the right size
    std::vector<oip::output_choice> outputs;  ///< binary, all of them
    std::chrono::nanoseconds timeout{};       ///< 0: none was asked for
    oip::request_payload payload;
    bool empty_end = false;  ///< of a stream: the end is told also where it has no outputs
};

/// Fails with `invalid_argument` and a sentence; `unsupported`: sequences, classification; `not_found`:
/// the version. What `message` was read from has to outlive the result.
[[nodiscard]] result<wire_request> fit_to_model(const infer_message& message, const oip::model_description& model);

/// Writes all inputs to their places in a request's payload, with one copy of each byte, and zeros between them.
/// `room` holds `request.payload.bytes()`.
void write_inputs(const wire_request& request, const oip::model_description& model, std::span<std::byte> room);

}  // namespace accel::examples::serving::wire
