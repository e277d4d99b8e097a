// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/http/backend.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/model_description.hpp"

#include <accel_transport/target.hpp>
#include <accel_transport/timeline.hpp>

#include <chrono>
#include <cstdint>

namespace accel::examples::serving::doors {

/// A model behind a door, and what the door has counted for it.
struct served_model {
    oip::model_description description;
    backend* to = nullptr;
    accel::target target{};
    oip::model_counts counts{};
};

/// Bytes of all input tensors, without what lies between them: the most that a binary section may have.
[[nodiscard]] std::uint64_t binary_input_bytes(const oip::model_description& model);

/// The longest JSON text that a request for this model may need, at most `limit`.
[[nodiscard]] std::uint64_t json_input_bytes(const oip::model_description& model, std::uint64_t limit);

/// Counts a request that took so long in the door.
void count_success(oip::model_counts& to, std::chrono::nanoseconds took, const timeline& stages);
void count_failure(oip::model_counts& to, std::chrono::nanoseconds took);

}  // namespace accel::examples::serving::doors
