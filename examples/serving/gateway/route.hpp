// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/server_choice.hpp"

#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <cstdint>
#include <string>

namespace accel::examples::gateway {

struct passage;

/// One model, the servers that have it, and the requests that wait for one of them.
class route : public server_choice {
  public:
    route(const std::string& model, const reach_settings& chosen)
        : server_choice(chosen.balance),
          model_(model),
          target_(model.empty() ? accel::target{} : target_of(model)),
          key_(chosen.key) {}

    [[nodiscard]] const std::string& model() const noexcept { return model_; }
    [[nodiscard]] accel::target target() const noexcept { return target_; }
    /// What sticky goes by for this request.
    [[nodiscard]] std::uint64_t key_of(const exchange& one) const noexcept {
        return key_ == sticky_key::trace && one.trace_id() != 0 ? one.trace_id() : one.session_id();
    }

    // Requests that wait, oldest first.
    passage* oldest = nullptr;
    passage* youngest = nullptr;

  private:
    std::string model_;
    accel::target target_;
    sticky_key key_;
};

}  // namespace accel::examples::gateway
