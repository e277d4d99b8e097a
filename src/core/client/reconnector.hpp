// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/backoff.hpp"
#include "core/client/connect.hpp"
#include "core/clock.hpp"
#include "core/event_signal.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

namespace accel::core {

/// Connects again in the background, with exponential back-off, until it succeeds or is destroyed. The back-off begins
/// anew once a connection has lived for `backoff_max`. One channel's own: others do not notice.
class reconnector {
  public:
    /// Starts its thread, which waits for `start`: at a loss it might be refused.
    explicit reconnector(const connect_request& request);
    ~reconnector();
    reconnector(const reconnector&) = delete;
    reconnector& operator=(const reconnector&) = delete;

    /// Starts trying. A try that is under way goes on.
    void start() noexcept;
    /// `take` has a connection.
    [[nodiscard]] bool ready() const noexcept { return ready_.load(std::memory_order_acquire); }
    /// The new connection, once, when `ready`; then idle until the next start.
    [[nodiscard]] channel_connection take();
    /// The server of the connection that was taken last.
    [[nodiscard]] const uri& peer() const noexcept { return request_.peer; }
    /// Its keys: files that have changed are read before a try.
    [[nodiscard]] const std::shared_ptr<const security_identity>& security() const noexcept {
        return request_.security;
    }
    /// Readable when take() has something.
    [[nodiscard]] int event_fd() const noexcept { return signal_.fd(); }

  private:
    void run();
    /// Certificates may have been renewed. Files that cannot be used, or have just been written, change nothing.
    void load_keys();
    /// One attempt, for `take`. Its failure is logged.
    [[nodiscard]] result<void> connect();
    /// Tries each host once, in order.
    [[nodiscard]] result<channel_connection> try_hosts();
    /// Sleeps; false when it is time to stop.
    bool pause(nanoseconds duration);

    std::stop_source stop_;
    connect_request request_;
    backoff pauses_;                    ///< of the thread, as is the next
    nanoseconds connected_at_ = now();  ///< for the last time
    wake_signal signal_;
    std::atomic<bool> ready_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopping_ = false;
    bool wanted_ = false;
    std::optional<channel_connection> made_;
    std::thread thread_;
};

}  // namespace accel::core
