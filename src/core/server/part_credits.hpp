// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/server/exchange_state.hpp"

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
    void wake() noexcept;
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
    /// True: there is room, or `over()` says that there will be none. False: `who` is going to be called, or another
    /// waits already. Then nothing here may be touched any more: whoever was called may have ended the exchange.
    template <class Over>
    [[nodiscard]] bool await(exchange::part_waiter& who, Over over) noexcept {
        if (next() != nullptr) return true;
        exchange::part_waiter* seen = nullptr;
        if (!waiter_.compare_exchange_strong(seen, &arming, std::memory_order_seq_cst)) return false;
        // `wake` takes this mark away and calls nobody: until `who` stands there the exchange is still this thread's.
        if (next() != nullptr || over()) {
            waiter_.store(nullptr, std::memory_order_seq_cst);
            return true;
        }
        seen = &arming;
        return !waiter_.compare_exchange_strong(seen, &who, std::memory_order_seq_cst);
    }
    /// True: `who`, which waits, will not be called. False: it has been called, or is about to be.
    [[nodiscard]] bool forget(exchange::part_waiter& who) noexcept {
        exchange::part_waiter* seen = &who;
        return waiter_.compare_exchange_strong(seen, nullptr, std::memory_order_seq_cst);
    }

  private:
    [[nodiscard]] exchange_state* pop() noexcept;

    static inline constinit exchange::part_waiter arming{};  ///< somebody begins to wait

    std::atomic<exchange_state*> given_{nullptr};  ///< a stack, linked by `exchange_state::next`
    std::atomic<exchange::part_waiter*> waiter_{nullptr};
    exchange_state* next_ = nullptr;
    std::uint64_t sent_ = 0;
    std::uint32_t generation_ = 0;
};

}  // namespace accel::core
