// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/channel_calls.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/connect.hpp"

namespace accel::core {

/// How a channel loses its connection: what becomes of its calls, and of the memory that was lent for them. In the
/// order in which that happens. Belongs to the channel's thread.
class channel_loss {
  public:
    channel_loss(connect_request& request, channel_lifecycle& life, channel_calls& calls);

    /// The link has failed. True: calls that come now wait for the reason. False: the channel is lost.
    [[nodiscard]] bool doubt(status why) noexcept;
    /// Ends the connection. Calls whose memory nobody touches complete at once, the others when the link has closed.
    void lose(status why) noexcept;
    /// Closes the lost link as far as it goes now; once nothing touches our memory, every call is settled. Then takes a
    /// new connection if there is one.
    void settle(nanoseconds at) noexcept;
    /// For good. Waits for lent memory, within `close_timeout` and a second.
    void close() noexcept;

  private:
    void close_lost(nanoseconds deadline) noexcept;

    connect_request& request_;  ///< names the server of the connection in use
    channel_lifecycle& life_;
    channel_calls& calls_;
};

}  // namespace accel::core
