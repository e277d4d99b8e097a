// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/exchange_state.hpp"
#include "core/server/part_await.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

namespace accel::core {

/// The room that a client has given for the parts of one call: slots of its own, whose answers are the parts. The
/// worker adds room, one thread at a time takes it, neither locks. One for each slot of a session.
class part_credits {
  public:
    // The worker's thread.
    /// The call that the room is for; 0: none. Its room may arrive before it.
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    [[nodiscard]] bool empty() const noexcept { return given_.load(std::memory_order_relaxed) == nullptr; }
    /// Precondition: empty.
    void start(std::uint32_t generation) noexcept {
        generation_ = generation;
        sent_ = 0;
        next_ = nullptr;
    }
    void add(exchange_state& room) noexcept;
    /// Wakes whoever waits.
    void wake() noexcept { waiter_.wake(); }
    /// The call has its answer, so nobody takes room any more.
    void end() noexcept {
        generation_ = 0;
        wake();
    }

    // The thread that has the exchange; after `end` the worker's.
    /// The room of the next part; null: none now. It stays the next until `take`.
    [[nodiscard]] exchange_state* next() noexcept {
        if (next_ == nullptr) next_ = pop();
        return next_;
    }
    /// The room that `next` has named; null: none.
    [[nodiscard]] exchange_state* named() const noexcept { return next_; }
    /// Precondition: `named` is not null.
    exchange_state& take() noexcept { return *std::exchange(next_, nullptr); }
    /// Numbers the part that is about to be sent.
    [[nodiscard]] std::uint64_t count() noexcept { return sent_++; }
    [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
    /// True: there is room, or `over()` says that there will be none. As `part_await::await`.
    template <class Over>
    [[nodiscard]] bool await(exchange::part_waiter& who, Over over) noexcept {
        return waiter_.await(
            who, [this] { return next() != nullptr; }, over);
    }
    [[nodiscard]] bool waited_for() const noexcept { return waiter_.waited_for(); }
    /// As `part_await::forget`.
    [[nodiscard]] bool forget(exchange::part_waiter& who) noexcept { return waiter_.forget(who); }

  private:
    [[nodiscard]] exchange_state* pop() noexcept;

    std::atomic<exchange_state*> given_{nullptr};  ///< a stack, linked by `exchange_state::next`
    part_await waiter_;
    exchange_state* next_ = nullptr;
    std::uint64_t sent_ = 0;
    std::uint32_t generation_ = 0;
};

}  // namespace accel::core
