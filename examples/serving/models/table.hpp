// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/image_size.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

/// What a model takes and gives, and how much work that is. Offsets of the tensors are 0: a message places them.
struct model_shapes {
    std::string name;             ///< the target of its requests
    double gflops = 0;            ///< of one inference
    image_size image;             ///< the raw image that it also takes, instead of `inputs`; empty: none
    std::vector<tensor> inputs;   ///< of a batch of one
    std::vector<tensor> outputs;  ///< likewise, and the longest of them
    /// By output, if any is open: which of its dimensions may be smaller, and even 0; `max_tensor_rank`: none.
    std::vector<std::uint32_t> open{};
    std::vector<std::uint64_t> values{};  ///< by input, of a file: integers are below; 0: it does not say
};

/// The six models of Hanafy et al., Table II, the super-resolution of Girondi et al., and the digits network. The first
/// paper gives no shape for YoloV4's output: it is that of the network's three heads. The second gives none at all: it
/// is that of the network's published file, which makes an image's brightness three times as wide and high.
[[nodiscard]] std::span<const model_shapes> known_models();
/// Adds a model of the caller's own. `invalid_argument`: there is one of this name. Before other threads look at the
/// table, and before any pointer into it is kept.
[[nodiscard]] result<void> add_model(model_shapes added);
/// Null: there is none of this name.
[[nodiscard]] const model_shapes* find_model(std::string_view name);

/// How many bytes these tensors take, one behind the other as `place_tensors` lays them, without a table.
[[nodiscard]] std::size_t payload_bytes(std::span<const tensor> list);
/// Sets the offsets of tensors as `payload_bytes` counts them: from 0 on, each at a multiple of 64.
void place_from_zero(std::span<tensor> list) noexcept;
[[nodiscard]] inline std::size_t image_bytes(const image_size& one) {
    return std::size_t{one.height} * one.width * 3;
}

}  // namespace accel::examples::serving
