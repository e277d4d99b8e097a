// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/http/settings.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <string>
#include <vector>

namespace accel::examples::serving::doors {

/// A model and its server.
struct model_place {
    std::string name;
    std::string uri;
};

/// What a door is told by its command line and its configuration file.
struct choices {
    std::string http = "127.0.0.1:8000";
    std::vector<model_place> models;
    std::vector<oip::model_description> described;  ///< models whose shapes are given
    std::string certificate;
    std::string key;
    std::string tokens;
    std::string metrics;
    bool insecure = false;
    door_settings limits;
    shared_memory::permission regions;  ///< of clients of this host
};

}  // namespace accel::examples::serving::doors
