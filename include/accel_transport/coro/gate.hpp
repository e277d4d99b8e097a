// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

/// Coroutines that handle requests, and their way from thread to thread.
namespace accel::coro {

/// A coroutine that starts at once, belongs to nobody and frees itself: for handlers of a server, and for loops of a
/// program. An exception that leaves it ends the process.
struct detached {
    /// The compiler calls these.
    struct promise_type {
        [[nodiscard]] detached get_return_object() const noexcept { return {}; }
        [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
        [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
    };
};

/// The way of coroutines to another thread: `co_await gate.enter()` goes on inside `run` of the thread that owns the
/// gate. A handler so comes from its worker to the thread whose `calls` it awaits. `enter` from any thread; coroutines
/// that wait here are destroyed, if at all, on the owner's.
class gate {
  public:
    /// `wake` makes the owner's loop call `run`: it writes to an eventfd, or posts. Any thread; must not throw.
    explicit gate(std::function<void()> wake) : wake_(std::move(wake)) {}
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;
    /// Coroutines that still wait go on here, and are told false. Nobody may enter any more.
    ~gate() { (void)resume(false); }

    /// `co_await` gives true on the owner's thread; false: the gate is gone.
    class [[nodiscard]] passage {
      public:
        explicit passage(gate& through) noexcept : gate_(through) {}
        passage(const passage&) = delete;
        passage& operator=(const passage&) = delete;
        ~passage() {
            if (waiting_) gate_.forget(*this);
        }
        [[nodiscard]] bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> waiting) {
            waiting_ = waiting;
            gate_.admit(*this);
        }
        [[nodiscard]] bool await_resume() const noexcept { return open_; }

      private:
        friend class gate;
        friend class room_for_part;
        gate& gate_;
        std::coroutine_handle<> waiting_;
        bool open_ = true;
    };
    [[nodiscard]] passage enter() noexcept { return passage{*this}; }

    /// Resumes those that have entered; how many. By the owner's thread.
    std::size_t run() { return resume(true); }

  private:
    friend class room_for_part;
    void admit(passage& one) {
        const std::lock_guard lock(mutex_);
        entered_.push_back(&one);
        if (entered_.size() == 1) wake_();
    }
    void forget(const passage& one) {
        const std::lock_guard lock(mutex_);
        std::erase(entered_, &one);
    }
    [[nodiscard]] passage* next() {
        const std::lock_guard lock(mutex_);
        if (entered_.empty()) return nullptr;
        passage* const one = entered_.front();
        entered_.erase(entered_.begin());
        return one;
    }
    std::size_t resume(bool open) {
        std::size_t count = 0;
        while (passage* const one = next()) {
            one->open_ = open;
            std::exchange(one->waiting_, {}).resume();
            ++count;
        }
        return count;
    }

    std::function<void()> wake_;
    std::mutex mutex_;
    std::vector<passage*> entered_;
};

/// `co_await room_for_part(exchange, gate)` gives room for the next part of a response, to be written in place. Empty:
/// the client takes no more parts, has cancelled or has left; the exchange still has to be ended. On the gate's thread,
/// and goes on there. Exchange and gate must outlive the wait, and nobody else may use the exchange meanwhile; if a
/// wait is destroyed, it must be the exchange's last. Allocates when it waits.
class [[nodiscard]] room_for_part {
  public:
    room_for_part(exchange& of, gate& through) noexcept : exchange_(of), gate_(through) {}
    room_for_part(const room_for_part&) = delete;
    room_for_part& operator=(const room_for_part&) = delete;
    ~room_for_part() { leave(); }

    [[nodiscard]] bool await_ready() noexcept {
        return !exchange_.in_parts() || exchange_.cancelled() || !exchange_.part().empty();
    }
    /// False: there is room by now, or never will be.
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) {
        waits_ = std::make_shared<wait>(gate_, waiting);
        // A client that has cancelled gives no room.
        stopped_.emplace(exchange_.stop_token(), [waits = waits_] { waits->enter(); });
        waits_->until_called = waits_;
        if (!exchange_.await_part(*waits_)) return true;
        waits_->until_called.reset();
        leave();
        return false;
    }
    [[nodiscard]] std::span<std::byte> await_resume() noexcept {
        const bool open = !waits_ || waits_->way.open_;
        leave();
        return !open || exchange_.cancelled() ? std::span<std::byte>{} : exchange_.part();
    }

  private:
    /// Lives until the server has called it, which may be when the exchange ends.
    struct wait : part_waiter {
        wait(gate& through, std::coroutine_handle<> waiting) noexcept
            : part_waiter{[](part_waiter& self) noexcept { static_cast<wait&>(self).on_room(); }}, way(through) {
            way.waiting_ = waiting;
        }
        void on_room() noexcept {
            const std::shared_ptr<wait> own = std::move(until_called);
            enter();
        }
        /// Once. Any thread.
        void enter() {
            const std::lock_guard lock(mutex);
            if (!std::exchange(entered, true)) way.gate_.admit(way);
        }
        /// Nobody waits any more. By the gate's thread.
        void leave() {
            {
                const std::lock_guard lock(mutex);
                entered = true;
            }
            if (std::exchange(way.waiting_, {})) way.gate_.forget(way);
        }
        gate::passage way;
        std::shared_ptr<wait> until_called;
        std::mutex mutex;
        bool entered = false;
    };
    void leave() {
        stopped_.reset();
        if (const std::shared_ptr<wait> one = std::exchange(waits_, {})) one->leave();
    }

    exchange& exchange_;
    gate& gate_;
    std::shared_ptr<wait> waits_;
    std::optional<std::stop_callback<std::function<void()>>> stopped_;
};

}  // namespace accel::coro
