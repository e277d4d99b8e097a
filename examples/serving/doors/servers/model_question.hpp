// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/servers/door_channel.hpp"

#include <cstddef>

namespace accel::examples::serving::doors {

class backend;

/// A call without a payload that asks a server which has said that it lacks the model whether it still does. As long as
/// that is so, no model sees it. The first answer of another kind, an error as well, tells that the model is there.
class model_question final : public caller {
  public:
    /// `server`: where it is asked.
    model_question(backend& of, std::size_t server) : of_(of), server_(server) {}
    void on_slot(status, const call_slot&) override {}
    void on_answer(door_channel& on, const completion& answer) override;

  private:
    backend& of_;
    std::size_t server_;
};

}  // namespace accel::examples::serving::doors
