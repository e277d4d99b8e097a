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

/// Coroutines that handle requests, and how they change threads.
namespace accel::coro {

/// A coroutine that starts at once, has no owner and frees itself: for handlers of a server, and for a program's loops.
/// An exception that leaves the coroutine ends the process.
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

/// Moves coroutines to another thread: `co_await gate.enter()` resumes inside `run` on the thread that owns the gate. A
/// handler moves in this way from its worker to the thread whose `calls` it awaits. Any thread may `enter`. Only the
/// owner's thread may destroy coroutines that wait here.
class gate {
  public:
    /// `wake` makes the owner's loop call `run`, for example through an eventfd. Called on any thread; must not throw.
    explicit gate(shared_function<void()> wake) : wake_(std::move(wake)) {}
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;
    /// Resumes coroutines that still wait, with false. No thread may enter any more.
    ~gate() { (void)resume(false); }

    /// `co_await` gives true on the owner's thread; false: the gate is being destroyed.
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

    /// Resumes the coroutines that have entered, and returns their number. On the owner's thread.
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

    shared_function<void()> wake_;
    std::mutex mutex_;
    std::vector<passage*> entered_;
};

/// `co_await room_for_part(exchange, gate)` gives room for the next part of a response, to be written in place. Empty:
/// the client takes no more parts, has cancelled or has disconnected; the exchange must still be ended. Must be awaited
/// on the gate's thread, and resumes there. Exchange and gate must outlive the wait, and nothing else may use the
/// exchange meanwhile. If a wait is destroyed early, the exchange must not wait again. Allocates when it waits.
class [[nodiscard]] room_for_part {
  public:
    room_for_part(exchange& of, gate& through) noexcept : exchange_(of), gate_(through) {}
    room_for_part(const room_for_part&) = delete;
    room_for_part& operator=(const room_for_part&) = delete;
    ~room_for_part() { leave(); }

    [[nodiscard]] bool await_ready() noexcept {
        return !exchange_.in_parts() || exchange_.cancelled() || !exchange_.part().empty();
    }
    /// False: there is room by now, or there never will be.
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) {
        waits_ = std::make_shared<wait>(gate_, waiting);
        // A client that has cancelled frees no room.
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
    /// Lives until the server has called it, at the latest when the exchange ends.
    struct wait : exchange::part_waiter {
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
        /// Nobody waits any more. On the gate's thread.
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
