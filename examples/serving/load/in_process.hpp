// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/settings.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/status.hpp>

#include <memory>
#include <string>
#include <vector>

namespace accel::examples::serving {

/// A model server in this process, as `model_server` serves: what `local://` needs. Serves until it is destroyed. Its
/// context has to outlive it.
class in_process_server {
  public:
    virtual ~in_process_server() = default;
    [[nodiscard]] virtual std::vector<std::string> endpoints() const = 0;

    /// Loads the models and listens. `unsupported`: `chosen` asks for several processes or a GPU-resident service.
    [[nodiscard]] static result<std::unique_ptr<in_process_server>> start(context& ctx, const settings& chosen);
};

}  // namespace accel::examples::serving
