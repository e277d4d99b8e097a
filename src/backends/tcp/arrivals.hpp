// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/event_signal.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace accel::tcp {

class tcp_link;

/// A server's connections on their way from the control plane's thread, which takes them in, to the poller's.
/// Thread-safe.
class arrivals {
  public:
    struct arrival {
        tcp_link* link = nullptr;
        core::data_connection connection;
    };

    /// From now on the link's client may connect, once.
    void expect(tcp_link& link, const core::link_config& config, bool encrypted);
    /// Nothing arrives for the link any more. Idempotent.
    void forget(std::uint64_t session_id, const tcp_link& link) noexcept;

    /// Checks the session, its token and whether the connection is as agreed; answers it and keeps it for the poller.
    [[nodiscard]] result<void> take(core::data_connection& made);
    /// True if `next` may have something. Cheap.
    [[nodiscard]] bool waiting() const noexcept { return waiting_.load(std::memory_order_acquire); }
    /// All that have arrived.
    [[nodiscard]] std::vector<arrival> take_all() noexcept;
    /// Readable while something waits.
    [[nodiscard]] int fd() const noexcept { return signal_.fd(); }

  private:
    struct expected {
        tcp_link* link;
        core::session_token token;
        bool encrypted;
    };

    [[nodiscard]] result<expected> claim(const core::data_connection& made);

    std::mutex mutex_;
    std::unordered_map<std::uint64_t, expected> expected_;
    std::vector<arrival> arrived_;
    std::atomic<bool> waiting_{false};
    core::wake_signal signal_;
};

}  // namespace accel::tcp
