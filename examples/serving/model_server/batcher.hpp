// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/request_check.hpp"

#include <accel_transport/server.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace accel::examples::serving {

/// When a batch leaves.
struct batch_limits {
    std::size_t most = 1;                     ///< requests of a batch; at least 1
    std::chrono::nanoseconds longest_wait{};  ///< of its first request for others
    std::size_t waiting = 1024;               ///< requests at most; beyond it they are refused with `overloaded`
    std::uint32_t threads = 1;                ///< each with a batch of its own; with one, order is kept
};

/// A request that waits: it has been checked.
struct batch_member {
    exchange request;
    request_form form;
    std::chrono::steady_clock::time_point arrived;
    std::chrono::steady_clock::time_point gives_up;  ///< its client
};

/// When a batch leaves whose first member came at `arrived` and whose most impatient client gives up at `gives_up`, if
/// one takes `work`: soon enough for that client, with a quarter of `work` to spare, and 1 ms at least. `work` of 0 is
/// not known yet: then half of the time is for it.
[[nodiscard]] std::chrono::steady_clock::time_point leaving_time(std::chrono::steady_clock::time_point arrived,
                                                                 std::chrono::steady_clock::time_point gives_up,
                                                                 std::chrono::nanoseconds longest_wait,
                                                                 std::chrono::nanoseconds work) noexcept;

struct batch_statistics {
    std::uint64_t batches = 0;
    std::uint64_t requests = 0;  ///< in them
    std::uint64_t refused = 0;   ///< no room to wait
    std::uint64_t given_up = 0;  ///< cancelled, or too late when their batch left
};

/// Collects requests into batches and has threads of its own work on them, in order of arrival. A batch leaves when it
/// is full, when its first request has waited long enough, or when a deadline nears. Requests that nobody waits for any
/// more are left out and ended. A lock is held while handles move, never while a model works: batches are where threads
/// meet. After the start nothing is allocated.
class batcher {
  public:
    /// Answers all members of a batch; they are empty handles afterwards. Called on thread `index`.
    using work = std::function<void(std::uint32_t index, std::span<batch_member> batch)>;

    batcher(const batch_limits& limits, work does);
    batcher(const batcher&) = delete;
    batcher& operator=(const batcher&) = delete;
    /// As `stop`.
    ~batcher();

    /// Any thread. Answers `overloaded` where too many wait, or after `stop`.
    void put(exchange request, const request_form& form) noexcept;
    /// Works on what waits, without waiting for more, and ends the threads.
    void stop() noexcept;
    [[nodiscard]] batch_statistics statistics() const;

  private:
    using time_point = std::chrono::steady_clock::time_point;

    void run(std::uint32_t index) noexcept;
    [[nodiscard]] bool collect(std::vector<batch_member>& into) noexcept;
    [[nodiscard]] time_point leaves_at() const noexcept;
    void take(std::vector<batch_member>& into) noexcept;
    std::size_t leave_out(std::vector<batch_member>& batch) noexcept;
    void note(std::chrono::nanoseconds took, std::size_t requests, std::size_t given_up) noexcept;

    const batch_limits limits_;
    const work does_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    /// A ring; `first_` is the oldest.
    std::vector<std::optional<batch_member>> ring_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::chrono::nanoseconds usual_work_{};  ///< of a batch: the longest lately
    batch_statistics seen_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace accel::examples::serving
