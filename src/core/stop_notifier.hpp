// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/event_signal.hpp"

#include <accel_transport/completion.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace accel::core {

class cancel_board;

/// Stops the work of exchanges that nobody waits for. It has a thread of its own, because applications may hang
/// callbacks on a stop: neither a worker nor the control plane waits for them. The thread starts with the first
/// exchange that is watched. Thread-safe.
class stop_notifier {
  public:
    stop_notifier() = default;
    ~stop_notifier() { end(); }
    stop_notifier(const stop_notifier&) = delete;
    stop_notifier& operator=(const stop_notifier&) = delete;

    /// Watches an exchange until `forget`: it is stopped when `board` says that nobody waits for it, or at `deadline`.
    /// The board has to live until then. Throws what std::thread throws.
    [[nodiscard]] std::stop_source watch(const cancel_board& board, call_id which, nanoseconds deadline);
    void forget(const cancel_board& board, std::uint32_t slot);
    /// A board has news of an exchange that was watched before. Neither locks nor allocates.
    void wake() noexcept { wake_->set(); }
    /// Stops what is to be stopped, and ends the thread. Not on that thread.
    void end();

  private:
    struct watched {
        std::stop_source source;
        std::uint32_t generation;
        nanoseconds deadline;
        bool told = false;
    };

    /// Those of one round: the thread allocates nothing.
    using due_stops = std::array<std::optional<std::stop_source>, 32>;

    void start();
    void run() noexcept;
    [[nodiscard]] bool stop_some(nanoseconds& next) noexcept;
    void take_due(due_stops& due, nanoseconds& next) noexcept;

    std::mutex mutex_;
    std::optional<wake_signal> wake_;  ///< from the first watch on
    std::map<std::pair<const cancel_board*, std::uint32_t>, watched> watched_;
    bool ending_ = false;
    std::thread thread_;
};

}  // namespace accel::core
