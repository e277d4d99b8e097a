// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/configuration/settings.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/shared_memory/region_table.hpp"
#include "serving/gateway/reach.hpp"

#include <string>
#include <vector>

namespace accel::examples::serving::doors {

/// A model and one of its servers.
struct model_place {
    std::string name;
    std::string uri;
};

/// What the doors are told by its command line and its configuration file.
struct choices {
    std::string http;  ///< HOST:PORT; empty: no such door
    std::string grpc;  ///< likewise
    std::vector<model_place> models;
    std::vector<oip::model_description> described;  ///< models whose shapes are given
    std::string certificate;
    std::string key;
    std::string tokens;
    std::string metrics;
    bool insecure = false;
    bool json = false;  ///< what the program says is JSON
    gateway::reach_settings reach{.channels = 1};
    door_settings limits;
    shared_memory::permission regions;  ///< of clients of this host
};

}  // namespace accel::examples::serving::doors
