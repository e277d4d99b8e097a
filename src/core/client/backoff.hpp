// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <utility>

namespace accel::core {

/// The pauses before tries to connect, each twice as long as the last one.
class backoff {
  public:
    backoff(nanoseconds shortest, nanoseconds longest) noexcept
        : shortest_(shortest), longest_(longest), coming_(shortest) {}

    /// The pause before the next try.
    [[nodiscard]] nanoseconds take() noexcept { return std::exchange(coming_, doubled()); }
    /// The one that `take` returns next.
    [[nodiscard]] nanoseconds coming() const noexcept { return coming_; }
    /// The connection that a try has made has ended. A server that accepts and leaves at once is not dialled faster
    /// than one that refuses. Whether it has answered a call says less: a crash may follow the answer.
    void ended_after(nanoseconds life) noexcept {
        if (life >= longest_) coming_ = shortest_;
    }

  private:
    [[nodiscard]] nanoseconds doubled() const noexcept { return coming_ > longest_ / 2 ? longest_ : 2 * coming_; }

    nanoseconds shortest_;
    nanoseconds longest_;
    nanoseconds coming_;
};

}  // namespace accel::core
