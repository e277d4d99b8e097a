// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

/// What a door has counted for one model.
struct model_counts {
    struct stage {
        std::uint64_t count = 0;
        std::chrono::nanoseconds sum{};
    };
    stage success;  ///< from the request's head to the answer
    stage fail;
    stage queue;                       ///< at the server
    stage compute_input;               ///< copies and preprocessing
    stage compute_infer;               ///< inference
    stage compute_output;              ///< the answer's way back
    std::chrono::milliseconds last{};  ///< of the last inference, since 1970
};

/// Kinds of memory that clients may register.
struct allowed_memory {
    bool system = false;
    bool cuda = false;
};
/// Names of the extensions that these are.
[[nodiscard]] std::vector<std::string_view> shared_memory_extensions(const allowed_memory& allowed);

// The answers to GET: JSON texts. Of health, Triton's clients read only the status, and KServe's read these.
[[nodiscard]] std::string live_document();
[[nodiscard]] std::string ready_document();
[[nodiscard]] std::string model_ready_document(std::string_view model);
[[nodiscard]] std::string server_metadata(std::string_view version, const allowed_memory& allowed);
[[nodiscard]] std::string model_metadata(const model_description& model);
/// As Triton's model configuration: no batching dimension, shapes are whole, also where their first one is -1.
[[nodiscard]] std::string model_configuration(const model_description& model);

struct counted_model {
    const model_description* model;
    const model_counts* counts;
};
[[nodiscard]] std::string model_statistics(std::span<const counted_model> models);

}  // namespace accel::examples::serving::oip
