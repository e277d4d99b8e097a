// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/session.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace accel::core {

/// A queue of commands from control planes to a worker's thread. Thread-safe.
class session_commands {
  public:
    struct command {
        std::unique_ptr<session> installed;  ///< or null: close `id`
        std::uint64_t id = 0;
        status why = status::ok;
    };

    void push(command added) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(added));
        pending_.store(true, std::memory_order_seq_cst);
    }
    /// Cheap.
    [[nodiscard]] bool pending(std::memory_order order = std::memory_order_acquire) const noexcept {
        return pending_.load(order);
    }
    [[nodiscard]] std::vector<command> take() noexcept {
        const std::lock_guard lock(mutex_);
        pending_.store(false, std::memory_order_relaxed);
        return std::exchange(waiting_, {});
    }

  private:
    std::atomic<bool> pending_{false};
    std::mutex mutex_;
    std::vector<command> waiting_;
};

}  // namespace accel::core
