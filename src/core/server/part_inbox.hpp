// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/exchange_state.hpp"
#include "core/server/part_await.hpp"

#include <atomic>
#include <cstdint>

namespace accel::core {

/// The parts of one call's request that have arrived and that no handler has taken: messages in slots of their own,
/// where they stay. The worker adds parts as they come, one thread at a time takes them in the order of their numbers,
/// neither locks. One for each slot of a session.
class part_inbox {
  public:
    // The worker's thread.
    /// The call that the parts are of; 0: none. Its parts may arrive before it.
    [[nodiscard]] std::uint32_t generation() const noexcept { return generation_; }
    /// Another call begins, of which nothing has come. Precondition: `generation` is 0.
    void start(std::uint32_t generation) noexcept;
    /// Adds a part. False: no correct client sends what has come so far: a number twice, one that is not among the next
    /// `slots`, a second last part, or a part after the last.
    [[nodiscard]] bool add(exchange_state& part, std::uint64_t number, bool last, std::uint32_t slots) noexcept;
    /// Wakes whoever waits.
    void wake() noexcept { waiter_.wake(); }
    /// The call has its answer. Returns the parts that nobody has taken, linked by `exchange_state::next`.
    [[nodiscard]] exchange_state* end() noexcept;

    // The thread that has the exchange; after `end` the worker's.
    /// The next part; null: it has not arrived.
    [[nodiscard]] exchange_state* take() noexcept;
    /// The last part has been taken.
    [[nodiscard]] bool complete() const noexcept { return complete_; }
    /// True: the next part is there, or `over()` says that nobody needs it. As `part_await::await`.
    template <class Over>
    [[nodiscard]] bool await(exchange::part_waiter& who, Over over) noexcept {
        return waiter_.await(
            who, [this] { return complete_ || look(); }, over);
    }
    [[nodiscard]] bool waited_for() const noexcept { return waiter_.waited_for(); }
    /// As `part_await::forget`.
    [[nodiscard]] bool forget(exchange::part_waiter& who) noexcept { return waiter_.forget(who); }

  private:
    static constexpr std::uint64_t unknown = ~std::uint64_t{0};

    void hand_on(exchange_state& part) noexcept;
    [[nodiscard]] exchange_state* take_early() noexcept;
    [[nodiscard]] bool look() noexcept;

    std::atomic<exchange_state*> arrived_{nullptr};  ///< a stack in order, linked by `exchange_state::next`
    part_await waiter_;
    exchange_state* next_ = nullptr;   ///< taken off the stack, oldest first
    exchange_state* early_ = nullptr;  ///< a heap of parts that came before others, by their numbers
    std::uint64_t expected_ = 0;       ///< number of the part that is handed on next
    std::uint64_t highest_ = 0;        ///< one more than the highest number that has come
    std::uint64_t count_ = unknown;    ///< of all parts, once the last has come
    std::uint32_t generation_ = 0;
    bool complete_ = false;
};

}  // namespace accel::core
