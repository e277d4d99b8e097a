// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/shm/descriptors.hpp"
#include "core/connection.hpp"
#include "core/event_signal.hpp"

#include <accel_transport/status.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace accel::shm {

class shm_link;

/// A server's connections on their way from the control plane's thread, which takes them in and passes them their
/// shared memory, to the poller's. Thread-safe.
class arrivals {
  public:
    struct arrival {
        shm_link* link = nullptr;
        core::unique_fd socket;
    };
    /// What a session's client gets.
    struct offer {
        core::session_token token{};
        core::unique_fd requests;
        core::unique_fd responses;
        core::unique_fd gpu_requests{};  ///< open if its client asked for slots on a GPU
        core::unique_fd gpu_responses{};
    };

    /// `page`: the poller's, which outlives this.
    explicit arrivals(int page) noexcept : page_(page) {}
    /// From now on the link's client may connect, once.
    void expect(shm_link& link, std::uint64_t session_id, offer made);
    /// Nothing arrives for the link any more. Idempotent.
    void forget(std::uint64_t session_id, const shm_link& link) noexcept;

    /// Checks session and token, answers the connection and keeps it for the poller.
    [[nodiscard]] result<void> take(core::data_connection& made);
    /// True if `take_all` may have something. Cheap.
    [[nodiscard]] bool waiting() const noexcept { return waiting_.load(std::memory_order_acquire); }
    [[nodiscard]] std::vector<arrival> take_all() noexcept;
    /// Readable while something waits.
    [[nodiscard]] int fd() const noexcept { return signal_.fd(); }

  private:
    struct expected {
        shm_link* link;
        offer made;
    };

    [[nodiscard]] result<void> admit(const expected& awaited, const core::data_connection& made) const;

    int page_;
    std::mutex mutex_;
    std::unordered_map<std::uint64_t, expected> expected_;
    std::vector<arrival> arrived_;
    std::atomic<bool> waiting_{false};
    core::wake_signal signal_;
};

}  // namespace accel::shm
