// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/documents.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/servers/backend.hpp"

#include <accel_transport/target.hpp>
#include <accel_transport/timeline.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <string>

namespace accel::examples::serving::doors {

/// A model behind a door, and what the door has counted for it.
struct served_model {
    oip::model_description description;
    backend* to = nullptr;
    accel::target target{};
    oip::model_counts counts{};
};

using model_table = std::map<std::string, served_model, std::less<>>;

/// Counts a request that took so long in the door.
void count_success(oip::model_counts& to, std::chrono::nanoseconds took, const timeline& stages);
void count_failure(oip::model_counts& to, std::chrono::nanoseconds took);

}  // namespace accel::examples::serving::doors
