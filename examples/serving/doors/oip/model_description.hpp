// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

struct named_tensor {
    std::string name;
    tensor what;        ///< with its offset in the payload
    bool text = false;  ///< the generate extension has a string for it: bytes of UTF-8, with zeros behind them
};

/// What a model takes and gives, as its clients see it.
struct model_description {
    std::string name;                   ///< in paths
    std::string target;                 ///< of its requests
    std::vector<named_tensor> inputs;   ///< in the order of the payload
    std::vector<named_tensor> outputs;  ///< likewise
    std::size_t input_bytes = 0;        ///< of a request's payload
    std::size_t output_bytes = 0;       ///< of a response's
    bool decoupled = false;             ///< answers may come in parts, each with all outputs
};

/// Places the tensors one behind the other at multiples of 64, from 0 on. Returns the length of the payload; 0: one of
/// them is no tensor.
[[nodiscard]] std::size_t place(std::span<named_tensor> list) noexcept;

/// Checks names, types and shapes, and places the tensors. `invalid_argument` says what is wrong.
[[nodiscard]] result<model_description> checked(model_description model);

/// From a document like the protocol's model metadata: "name", "inputs" and "outputs" with "name", "datatype" and
/// "shape", for UINT8 maybe "text"; "target" where it is another than the name; "decoupled". Dimensions are fixed: none
/// is -1.
[[nodiscard]] result<model_description> read_description(std::string_view text);

/// "[1,3,224,224]".
[[nodiscard]] std::string shape_text(const tensor& one);

}  // namespace accel::examples::serving::oip
