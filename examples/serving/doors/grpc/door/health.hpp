// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/servers/served_model.hpp"

#include <string_view>

namespace accel::examples::serving::doors {

/// How a service of grpc.health.v1 is: a model by its name, or the whole door, which is "" and
/// "inference.GRPCInferenceService". A door serves while each of its models is ready; nothing does while the
/// door is `leaving`.
[[nodiscard]] wire::health_state health_of(const model_table& models, std::string_view service, bool leaving);

}  // namespace accel::examples::serving::doors
