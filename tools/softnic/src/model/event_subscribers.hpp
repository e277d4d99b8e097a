// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/event_channel.hpp"

#include <memory>
#include <vector>

namespace accel::softnic {

/// Who wants to hear of one object's events. The object shares it with whoever subscribes.
class event_subscribers {
  public:
    void add(std::shared_ptr<event_subscription> wish);
    void raise(const event_report& report);
    [[nodiscard]] bool empty() const { return wishes_.empty(); }

  private:
    std::vector<std::shared_ptr<event_subscription>> wishes_;
};

/// Objects made by verbs have no subscribers.
inline void tell(const std::shared_ptr<event_subscribers>& whom, const event_report& report) {
    if (whom) whom->raise(report);
}

}  // namespace accel::softnic
