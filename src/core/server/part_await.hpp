// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>

#include <atomic>

namespace accel::core {

/// Where the thread that has an exchange waits for what the worker brings. Neither locks.
class part_await {
  public:
    /// True: `ready()` says that it is there, or `over()` that it will never come. False: `who` is going to be called,
    /// or another waits already. Then nothing here may be touched any more: whoever was called may have ended the
    /// exchange.
    template <class Ready, class Over>
    [[nodiscard]] bool await(exchange::part_waiter& who, Ready ready, Over over) noexcept {
        if (ready()) return true;
        exchange::part_waiter* seen = nullptr;
        if (!waiter_.compare_exchange_strong(seen, &arming, std::memory_order_seq_cst)) return false;
        // `wake` may remove this mark, without calling anybody. So until `who` is stored, only this thread has the
        // exchange.
        if (ready() || over()) {
            waiter_.store(nullptr, std::memory_order_seq_cst);
            return true;
        }
        seen = &arming;
        return !waiter_.compare_exchange_strong(seen, &who, std::memory_order_seq_cst);
    }
    /// Somebody waits. The thread that has the exchange.
    [[nodiscard]] bool waited_for() const noexcept { return waiter_.load(std::memory_order_relaxed) != nullptr; }
    /// True: `who`, which waits, will not be called. False: it has been called, or is about to be.
    [[nodiscard]] bool forget(exchange::part_waiter& who) noexcept {
        exchange::part_waiter* seen = &who;
        return waiter_.compare_exchange_strong(seen, nullptr, std::memory_order_seq_cst);
    }
    /// The worker's thread, after it has brought something.
    void wake() noexcept {
        if (waiter_.load(std::memory_order_seq_cst) == nullptr) return;
        exchange::part_waiter* const who = waiter_.exchange(nullptr, std::memory_order_seq_cst);
        if (who != nullptr && who != &arming) who->wake(*who);
    }

  private:
    static inline constinit exchange::part_waiter arming{};  ///< somebody begins to wait

    std::atomic<exchange::part_waiter*> waiter_{nullptr};
};

}  // namespace accel::core
