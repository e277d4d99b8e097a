// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/health.hpp"

#include <algorithm>

namespace accel::examples::serving::doors {

wire::health_state health_of(const model_table& models, std::string_view service, bool leaving) {
    const auto ready = [](const auto& each) { return each.second.to->ready(); };
    const bool whole_door = service.empty() || service == "inference.GRPCInferenceService";
    const auto found = models.find(service);
    if (!whole_door && found == models.end()) return wire::health_state::unknown_service;
    if (leaving) return wire::health_state::not_serving;
    const bool serving = whole_door ? std::ranges::all_of(models, ready) : ready(*found);
    return serving ? wire::health_state::serving : wire::health_state::not_serving;
}

}  // namespace accel::examples::serving::doors
