// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/servers/door_channel.hpp"

#include <functional>
#include <utility>

namespace accel::examples::serving::doors {

/// A call of the door's own, without a payload.
class question final : public caller {
  public:
    explicit question(std::function<void(const completion&)> on_end) : on_end_(std::move(on_end)) {}
    void on_slot(status, const call_slot&) override {}
    void on_answer(door_channel& on, const completion& answer) override {
        on_end_(answer);
        on.release(answer.id);
    }

  private:
    std::function<void(const completion&)> on_end_;
};

}  // namespace accel::examples::serving::doors
