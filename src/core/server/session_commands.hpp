// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/session.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace accel::core {

/// A queue of commands from control planes to a worker's thread. Thread-safe.
class session_commands {
  public:
    struct command {
        std::unique_ptr<session> installed;  ///< or null: close `id`
        std::uint64_t id = 0;
        status why = status::ok;
    };

    /// A command is made in a list of one, so that giving it to the worker cannot fail.
    using list = std::list<command>;

    void push(list added) noexcept {
        const std::lock_guard lock(mutex_);
        waiting_.splice(waiting_.end(), added);
        pending_.store(true, std::memory_order_seq_cst);
    }
    /// Cheap. False, acquired: what the worker had done before it took the last of them is visible.
    [[nodiscard]] bool pending(std::memory_order order = std::memory_order_acquire) const noexcept {
        return pending_.load(order);
    }
    [[nodiscard]] list take() noexcept {
        list out;
        const std::lock_guard lock(mutex_);
        pending_.store(false, std::memory_order_release);
        out.swap(waiting_);
        return out;
    }

  private:
    std::atomic<bool> pending_{false};
    std::mutex mutex_;
    list waiting_;
};

}  // namespace accel::core
