// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <memory>
#include <span>

namespace accel::tests {

/// What a channel polls: one link, whose take(out) writes what has happened.
template <typename Link>
class link_poller final : public core::poller {
  public:
    explicit link_poller(Link& only) : link_(only) {}
    result<std::unique_ptr<core::link>> open_link(const core::link_config&) override {
        return error{status::unsupported, 0, "there is one link"};
    }
    std::size_t poll(std::span<core::link_event> out) noexcept override { return link_.take(out); }
    int event_fd() const noexcept override { return -1; }
    bool arm() noexcept override { return false; }

  private:
    Link& link_;
};

}  // namespace accel::tests
