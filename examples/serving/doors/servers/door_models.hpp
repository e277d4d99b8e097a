// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"
#include "serving/doors/servers/backend.hpp"
#include "serving/doors/servers/served_model.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/status.hpp>

#include <memory>

#include <boost/asio/io_context.hpp>

namespace accel::examples::serving::doors {

/// Models and their servers: one for each URI.
struct door_models {
    std::unique_ptr<backends> servers;
    model_table models;
};

/// Connects to the servers of `chosen.models` and asks for each model there; those that are away join later. Shapes
/// come from `chosen.described`, the first of a name, else from the table of models; one that takes raw images is there
/// twice, as NAME and as NAME_image. May block for `chosen.reach.patience`.
[[nodiscard]] result<door_models> connect_models(boost::asio::io_context& loop, context& ctx, const choices& chosen);

}  // namespace accel::examples::serving::doors
