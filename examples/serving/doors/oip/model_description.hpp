// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/image_size.hpp"
#include "serving/doors/oip/object_reader.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

struct named_tensor {
    std::string name;
    tensor what;           ///< with its offset in the longest payload; a variable dimension is 0
    bool text = false;     ///< the generate extension has a string for it: bytes of UTF-8, with zeros behind them
    bool strings = false;  ///< BYTES; `what.type` is UINT8, and `what.shape` counts strings
    std::uint64_t max_bytes = 0;  ///< of its elements
    std::uint64_t values = 0;     ///< integers in requests of `load` are below; 0: the description does not say

    /// Each request has the same number of bytes of it.
    [[nodiscard]] bool is_fixed() const noexcept;
};

/// What a model takes and gives, as its clients see it.
struct model_description {
    std::string name;                   ///< in paths
    std::string target;                 ///< of its requests
    std::vector<named_tensor> inputs;   ///< in the order of the payload
    std::vector<named_tensor> outputs;  ///< likewise
    std::size_t input_bytes = 0;        ///< of a request's payload, at most
    std::size_t output_bytes = 0;       ///< of a response's
    bool decoupled = false;             ///< answers may come in parts, each with all outputs
    image_size image{};                 ///< the raw image that the target also takes; empty: none
    double gflops = 0;                  ///< of an inference of a synthetic model
};

/// Where the tensor behind so many bytes begins: at a multiple of 64.
[[nodiscard]] constexpr std::size_t next_place(std::size_t end) noexcept {
    return (end + 63) / 64 * 64;
}

/// Checks names, types and shapes, and places the tensors. Without a target, that is the name. `invalid_argument` says
/// what is wrong.
[[nodiscard]] result<model_description> checked(model_description model);

/// The keys of a description but its name. They are read into `to`, which has to outlive them.
[[nodiscard]] std::vector<file::entry> description_entries(model_description& to);

/// A document like the protocol's model metadata, and with more keys: docs/serving.md, "Descriptions". `name` is the
/// file's, for errors.
[[nodiscard]] result<model_description> read_description(std::string_view text,
                                                         const std::string& name = "the description");
[[nodiscard]] result<model_description> read_description_file(const std::string& path);

/// How many of its dimensions are variable.
[[nodiscard]] std::size_t variable_dimensions(const tensor& what) noexcept;

/// "BYTES", or the name of its type.
[[nodiscard]] std::string_view datatype_of(const named_tensor& one) noexcept;

/// "[1,3,224,224]"; a dimension of 0, which is a variable one, is -1.
[[nodiscard]] std::string shape_text(const tensor& one);

/// The same of a shape without variable ones.
[[nodiscard]] std::string real_shape_text(const tensor& one);

/// The tensor with a shape that a message says. `invalid_argument`: another rank, or another dimension where that is
/// fixed; a dimension is 0, unless it `may_be_empty`; or it has more elements than `max_bytes` can hold, however large
/// the numbers are.
[[nodiscard]] result<tensor> with_shape(const named_tensor& declared, std::span<const std::uint64_t> shape,
                                        bool may_be_empty = false);
/// The tensor with so many elements: at most one of its dimensions is variable. `invalid_argument`: none is that long.
[[nodiscard]] result<tensor> with_elements(const named_tensor& declared, std::uint64_t count,
                                           bool may_be_empty = false);

}  // namespace accel::examples::serving::oip
