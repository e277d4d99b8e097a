// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/descriptors.hpp"
#include "core/awaited_connections.hpp"
#include "core/net/unique_fd.hpp"

namespace accel::shm {

class shm_link;

/// The descriptors for a session's client.
struct memory_offer {
    core::unique_fd requests;
    core::unique_fd responses;
    core::unique_fd gpu_requests{};  ///< open if its client asked for slots on a GPU
    core::unique_fd gpu_responses{};
};

/// A server's connections, as far as the poller. Their clients get their shared memory.
class arrivals : public core::awaited_connections<shm_link, memory_offer, core::unique_fd> {
  public:
    /// `page`: the poller's, which outlives this.
    explicit arrivals(int page) noexcept : page_(page) {}
    /// Checks session and token, answers the connection and keeps it for the poller.
    [[nodiscard]] result<void> take(core::data_connection& made);

  private:
    [[nodiscard]] result<core::unique_fd> admit(const memory_offer& own, core::data_connection& made) const;

    int page_;
};

}  // namespace accel::shm
