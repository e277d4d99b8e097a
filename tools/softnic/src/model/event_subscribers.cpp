// SPDX-License-Identifier: Apache-2.0
#include "model/event_subscribers.hpp"

namespace accel::softnic {

/// Channels come and go while an object stays.
void event_subscribers::add(std::shared_ptr<event_subscription> wish) {
    std::erase_if(wishes_, [](const auto& each) { return each->channel->closed(); });
    wishes_.push_back(std::move(wish));
}

void event_subscribers::raise(const event_report& report) {
    if (wishes_.empty()) return;
    const event_element element = encode(report);
    for (const auto& each : wishes_)
        if (each->what == report.what) each->channel->deliver(each, element);
}

}  // namespace accel::softnic
