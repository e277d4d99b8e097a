// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/control/round_robin.hpp"
#include "core/control/session.hpp"
#include "core/event_signal.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace accel::core {

/// A client's request for a session, and where its answer goes.
struct open_job {
    std::uint64_t connection = 0;
    client_identity client;
    std::uint64_t request = 0;
    session_request wish;
    nanoseconds sent{};      ///< the client's clock
    nanoseconds received{};  ///< ours
};

struct opened_session {
    open_job job;
    result<session_grant> outcome;
};

/// Opens sessions on a thread of its own, because memory takes time to register and heartbeats cannot wait
/// for it. Clients take turns, where they ask and where they are answered. Thread-safe.
class session_opener {
  public:
    /// `done` is set when `take` has something. Both must outlive the opener.
    session_opener(session_host& host, wake_signal& done);
    ~session_opener();
    session_opener(const session_opener&) = delete;
    session_opener& operator=(const session_opener&) = delete;

    /// Opens sessions on a thread of its own from now on. Without it, `open_next` does.
    void start();
    /// Opens the next, if there is one. For tests.
    bool open_next();

    /// False: too many are waiting already.
    [[nodiscard]] bool submit(open_job job);
    /// Drops what waits for a connection that has ended.
    void forget(const client_identity& client, std::uint64_t connection);
    /// At most `count`; of one client the oldest first.
    [[nodiscard]] std::vector<opened_session> take(std::size_t count);
    /// True: nothing waits, is under way, or can be taken.
    [[nodiscard]] bool idle();

  private:
    void run();
    [[nodiscard]] open_job take_next();
    void open_one(std::unique_lock<std::mutex>& lock);
    [[nodiscard]] bool keep(opened_session& done) noexcept;

    session_host& host_;
    wake_signal& done_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    round_robin<std::deque<open_job>> jobs_;          ///< that wait, of each client
    std::size_t waiting_ = 0;                         ///< of all clients
    round_robin<std::deque<opened_session>> opened_;  ///< of each client
    std::size_t untaken_ = 0;                         ///< of all clients
    bool busy_ = false;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace accel::core
