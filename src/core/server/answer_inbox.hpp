// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/exchange_state.hpp"

#include <atomic>
#include <utility>

namespace accel::core {

/// Answers given on other threads, on their way to the worker's. Lock-free.
class answer_inbox {
  public:
    /// Any thread.
    void push(exchange_state& answered) noexcept {
        exchange_state* head = newest_.load(std::memory_order_relaxed);
        do {
            answered.next = head;
        } while (!newest_.compare_exchange_weak(head, &answered, std::memory_order_seq_cst));
    }
    [[nodiscard]] bool empty(std::memory_order order = std::memory_order_relaxed) const noexcept {
        return newest_.load(order) == nullptr;
    }
    /// All of them, oldest first, linked through `next`.
    [[nodiscard]] exchange_state* take() noexcept {
        exchange_state* newest = newest_.exchange(nullptr, std::memory_order_acquire);
        exchange_state* oldest = nullptr;
        while (newest != nullptr) {
            exchange_state* next = std::exchange(newest->next, oldest);
            oldest = newest;
            newest = next;
        }
        return oldest;
    }

  private:
    alignas(64) std::atomic<exchange_state*> newest_{nullptr};
};

}  // namespace accel::core
