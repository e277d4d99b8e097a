// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/settings.hpp"
#include "serving/gateway/upstream.hpp"

#include <accel_transport/server.hpp>
#include <accel_transport/target.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::examples::gateway {

struct passage;

/// One model, the servers that have it, and the requests that wait for one of them.
class route {
  public:
    route(const std::string& model, const settings& chosen)
        : model_(model),
          target_(model.empty() ? accel::target{} : target_of(model)),
          balance_(chosen.balance),
          key_(chosen.key) {}

    [[nodiscard]] const std::string& model() const noexcept { return model_; }
    [[nodiscard]] accel::target target() const noexcept { return target_; }
    void add(upstream& server) { servers_.push_back(&server); }
    [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }
    [[nodiscard]] upstream& server(std::size_t i) const noexcept { return *servers_[i % servers_.size()]; }
    /// The server that this request is meant for. The others follow in their order.
    [[nodiscard]] std::size_t first_for(const exchange& one) noexcept;

    // Requests that wait, oldest first.
    passage* oldest = nullptr;
    passage* youngest = nullptr;

  private:
    std::string model_;
    accel::target target_;
    gateway::balance balance_;
    sticky_key key_;
    std::vector<upstream*> servers_;
    std::size_t next_ = 0;
};

}  // namespace accel::examples::gateway
