// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/counting/door_metrics.hpp"
#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/servers/backend.hpp"

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/target.hpp>
#include <accel_transport/timeline.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace accel::examples::serving::doors {

/// A model behind a door, and what the door has counted for it.
struct served_model {
    oip::model_description description;
    backend* to = nullptr;
    accel::target target{};
    std::size_t row = door_metrics::unknown_model;  ///< of the doors' metrics
    oip::model_counts counts{};
};

using model_table = std::map<std::string, served_model, std::less<>>;

/// The models' names, in the order of `served_model::row`.
[[nodiscard]] std::vector<std::string> names_of(const model_table& models);

/// How many unread parts an answer of this model may have; 0: it comes in one piece.
[[nodiscard]] std::uint32_t parts_of(const served_model& model, const door_settings& settings);

/// What a client is told of a call that failed at the model's server.
[[nodiscard]] error failure_of(const served_model& model, const completion& from);

/// Counts a request that took so long in the door.
void count_success(oip::model_counts& to, std::chrono::nanoseconds took, const timeline& stages);
void count_failure(oip::model_counts& to, std::chrono::nanoseconds took);

}  // namespace accel::examples::serving::doors
