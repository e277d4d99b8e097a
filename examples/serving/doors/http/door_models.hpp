// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"
#include "serving/doors/http/backend.hpp"
#include "serving/doors/http/http_door.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/status.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace accel::examples::serving::doors {

/// "NAME=URI" of a command line.
[[nodiscard]] result<model_place> read_model_place(const std::string& text);

/// Models and the channels to them: one for each URI.
struct door_models {
    std::vector<std::unique_ptr<backend>> backends;
    model_table models;
};

/// Models of files (`oip::read_description`). `invalid_argument` names the file that is wrong.
[[nodiscard]] result<std::vector<oip::model_description>> read_descriptions(std::span<const std::string> files);

/// Connects to every URI and finds each model there. Shapes come from `known`, the first of a name, else from the table
/// of models; one of the table that takes raw images is there twice, as NAME and as NAME_image. May block.
[[nodiscard]] result<door_models> connect_models(boost::asio::io_context& loop, context& ctx,
                                                 std::span<const model_place> places,
                                                 std::span<const oip::model_description> known);

}  // namespace accel::examples::serving::doors
