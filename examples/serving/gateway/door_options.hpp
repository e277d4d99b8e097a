// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/choices.hpp"

#include <accel_transport/status.hpp>

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace accel::examples::gateway {

/// Options of the doors as they were written.
struct door_words {
    std::string config;
    std::vector<std::string> models;
    std::vector<std::string> files;
};

/// `from` and `to` have to outlive the parsing.
void add_door_options(CLI::App& app, door_words& from, serving::doors::choices& to);

/// Adds the models of the command line and those of the `file` that it does not name.
[[nodiscard]] result<void> add_models(const door_words& from, const serving::doors::choices& file,
                                      serving::doors::choices& to);

}  // namespace accel::examples::gateway
