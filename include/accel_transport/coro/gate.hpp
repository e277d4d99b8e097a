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
        friend class part_wait;
        gate& gate_;
        std::coroutine_handle<> waiting_;
        bool (*look_)(passage& self) noexcept = nullptr;  ///< false: it goes on waiting
        bool open_ = true;
    };
    [[nodiscard]] passage enter() noexcept { return passage{*this}; }

    /// Resumes the coroutines that have entered, and returns their number. On the owner's thread.
    std::size_t run() { return resume(true); }

  private:
    friend class part_wait;
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
            if (open && one->look_ != nullptr && !one->look_(*one)) continue;
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

/// What `room_for_part` and `next_request_part` share: a wait for the server, which ends on the gate's thread.
class part_wait {
  public:
    part_wait(const part_wait&) = delete;
    part_wait& operator=(const part_wait&) = delete;

  protected:
    using begin_wait = bool (exchange::*)(exchange::part_waiter&) noexcept;

    part_wait(exchange& of, gate& through, begin_wait begin) noexcept : exchange_(of), gate_(through), begin_(begin) {}
    ~part_wait() { leave(); }

    /// False: there is a part by now, or there never will be.
    [[nodiscard]] bool suspend(std::coroutine_handle<> waiting) {
        waits_ = std::make_shared<wait>(*this, waiting);
        // A client that has cancelled frees no room, and sends nothing.
        stopped_.emplace(exchange_.stop_token(), [waits = waits_] { waits->enter(); });
        if (waits_->begin()) return true;
        leave();
        return false;
    }
    /// Ends the wait. False: the gate is being destroyed.
    [[nodiscard]] bool end() noexcept {
        const bool open = !waits_ || waits_->open_;
        leave();
        return open;
    }

    exchange& exchange_;

  private:
    /// Lives until the server has called it, at the latest when the exchange ends.
    struct wait : exchange::part_waiter, gate::passage, std::enable_shared_from_this<wait> {
        wait(part_wait& whose, std::coroutine_handle<> waiting) noexcept
            : part_waiter{[](part_waiter& self) noexcept { static_cast<wait&>(self).on_part(); }},
              passage(whose.gate_),
              of(whose.exchange_),
              await(whose.begin_) {
            waiting_ = waiting;
            look_ = [](passage& self) noexcept { return static_cast<wait&>(self).look(); };
        }
        /// False: nothing to wait for. After true, the server may have called already.
        [[nodiscard]] bool begin() noexcept {
            until_called = shared_from_this();
            if (!(of.*await)(*this)) return true;
            until_called.reset();
            return false;
        }
        void on_part() noexcept {
            const std::shared_ptr<wait> own = std::move(until_called);
            enter();
        }
        /// Any thread. Under the lock, so that it is not admitted after `leave`.
        void enter() {
            const std::lock_guard lock(mutex);
            if (!std::exchange(entered, true)) gate_.admit(*this);
        }
        /// True: nobody has entered since it began to wait, and nobody will.
        [[nodiscard]] bool claim() noexcept {
            const std::lock_guard lock(mutex);
            return !std::exchange(entered, true);
        }
        /// On the gate's thread. False: the server has called early, for a part that was taken meanwhile.
        [[nodiscard]] bool look() noexcept {
            {
                const std::lock_guard lock(mutex);
                entered = false;
            }
            return (of.cancelled() || !begin()) && claim();  // if it was called meanwhile, it is in the gate again
        }
        /// Nobody waits any more. On the gate's thread.
        void leave() {
            (void)claim();
            if (std::exchange(waiting_, {})) gate_.forget(*this);
        }
        exchange& of;
        const begin_wait await;
        std::shared_ptr<wait> until_called;
        std::mutex mutex;
        bool entered = false;
    };
    void leave() noexcept {
        stopped_.reset();
        if (const std::shared_ptr<wait> one = std::exchange(waits_, {})) one->leave();
    }

    gate& gate_;
    const begin_wait begin_;
    std::shared_ptr<wait> waits_;
    std::optional<std::stop_callback<std::function<void()>>> stopped_;
};

/// `co_await room_for_part(exchange, gate)` gives room for the next part of a response, to be written in place. Empty:
/// the client takes no more parts, has cancelled or has disconnected; the exchange must still be ended. Must be awaited
/// on the gate's thread, and resumes there. Exchange and gate must outlive the wait, and nothing else may use the
/// exchange meanwhile. If a wait is destroyed early, the exchange must not wait again. Allocates when it waits.
class [[nodiscard]] room_for_part : part_wait {
  public:
    room_for_part(exchange& of, gate& through) noexcept : part_wait(of, through, &exchange::await_part) {}

    [[nodiscard]] bool await_ready() noexcept {
        return !exchange_.in_parts() || exchange_.cancelled() || !exchange_.part().empty();
    }
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) { return suspend(waiting); }
    [[nodiscard]] std::span<std::byte> await_resume() noexcept {
        return !end() || exchange_.cancelled() ? std::span<std::byte>{} : exchange_.part();
    }
};

/// `co_await next_request_part(exchange, gate)` gives the next part of a request, under the rules of `room_for_part`.
/// Without a part, its status says why:
/// `invalid_state`: there are no more.
/// `cancelled`: the call was cancelled, or its deadline has passed.
/// `peer_lost`: the client has disconnected.
/// `closed`: the gate was destroyed after the wait and before the coroutine went on.
class [[nodiscard]] next_request_part : part_wait {
  public:
    next_request_part(exchange& of, gate& through) noexcept : part_wait(of, through, &exchange::await_request_part) {}

    [[nodiscard]] bool await_ready() noexcept { return receive(); }
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiting) { return suspend(waiting); }
    [[nodiscard]] request_part await_resume() noexcept {
        if (!end()) return request_part{status::closed};
        if (found_.status() == status::again && !receive()) found_ = request_part{status::cancelled};
        return std::move(found_);
    }

  private:
    /// False: nothing has come.
    [[nodiscard]] bool receive() noexcept {
        found_ = exchange_.receive();
        return found_.status() != status::again;
    }
    request_part found_{status::again};
};

}  // namespace accel::coro
