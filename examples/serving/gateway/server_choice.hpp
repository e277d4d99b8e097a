// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/gateway/reach.hpp"
#include "serving/gateway/upstream.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::examples::gateway {

/// The servers that have a model, and which of them the next request is meant for. Of one thread.
class server_choice {
  public:
    explicit server_choice(gateway::balance how) noexcept : balance_(how) {}

    void add(upstream& server) { servers_.push_back(&server); }
    [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }
    [[nodiscard]] upstream& server(std::size_t i) const noexcept { return *servers_[i % servers_.size()]; }
    /// The server that a request is meant for; the others follow in their order. `key`: what sticky goes by.
    [[nodiscard]] std::size_t first_for(std::uint64_t key) noexcept;

  private:
    gateway::balance balance_;
    std::vector<upstream*> servers_;
    std::size_t next_ = 0;
};

}  // namespace accel::examples::gateway
