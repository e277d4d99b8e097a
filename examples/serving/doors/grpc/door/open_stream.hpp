// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace accel::examples::serving::doors {

/// A call whose client sends many messages, as the door looks after it. All of it in the loop.
class open_stream {
  public:
    open_stream() = default;
    open_stream(const open_stream&) = delete;
    open_stream& operator=(const open_stream&) = delete;
    virtual ~open_stream() = default;

    /// Ends once its open requests have their answers.
    virtual void drain() = 0;
    /// Since when there is nothing to do before the client's next message; max: there is something.
    [[nodiscard]] virtual std::chrono::steady_clock::time_point waits_since() const noexcept = 0;
    /// A whole message has come.
    [[nodiscard]] virtual bool has_sent() const noexcept = 0;
    /// Ends the call instead of waiting for the next message.
    virtual void end_waiting() = 0;
};

}  // namespace accel::examples::serving::doors
