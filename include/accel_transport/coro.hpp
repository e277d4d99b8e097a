// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Awaiting calls in C++20 coroutines (docs/coroutines.md). Not part of accel_transport.hpp. There is no scheduler
/// here: coroutines go on inside `calls::poll` and `gate::run`, which the application's own loop calls.
#include <accel_transport/channel.hpp>
#include <accel_transport/server.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace accel::coro {

class calls;

/// How an awaited call ended, with its response. Owns its slot; move-only; must not outlive its `calls`.
class answer {
  public:
    answer(answer&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), content_(other.content_), kept_(std::move(other.kept_)) {}
    answer& operator=(answer&& other) noexcept {
        if (this == &other) return *this;
        reset();
        owner_ = std::exchange(other.owner_, nullptr);
        content_ = other.content_;
        kept_ = std::move(other.kept_);
        return *this;
    }
    ~answer() { reset(); }

    [[nodiscard]] accel::status status() const noexcept { return content_.status; }
    [[nodiscard]] bool ok() const noexcept { return content_.status == accel::status::ok; }
    /// The response in place; on a failure the handler's message, if any.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return content_.response; }
    [[nodiscard]] const completion& content() const noexcept { return content_; }

  private:
    friend class operation;
    answer(calls* owner, const completion& content, std::shared_ptr<void> kept) noexcept
        : owner_(owner), content_(content), kept_(std::move(kept)) {}
    void reset() noexcept;

    calls* owner_;  ///< null: it has no slot
    completion content_;
    std::shared_ptr<void> kept_;
};

/// One call of `calls` while it is awaited. `co_await` gives an `answer`.
/// If its coroutine is destroyed meanwhile, the call is cancelled, and what it keeps stays until the call has ended.
class [[nodiscard]] operation {
  public:
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;
    ~operation();

    [[nodiscard]] bool await_ready() noexcept { return start() == state::ended; }
    void await_suspend(std::coroutine_handle<> waiting) noexcept;
    [[nodiscard]] answer await_resume() noexcept {
        state_ = state::ended;
        return {has_slot_ ? &owner_ : nullptr, content_, std::move(kept_)};
    }

  private:
    friend class calls;
    enum class state : unsigned char { fresh, in_line, in_flight, ended };
    enum class source : unsigned char { bytes, lent, begun };
    operation(calls& owner, std::span<const std::byte> request, const submit_options& options,
              std::shared_ptr<void> kept) noexcept
        : owner_(owner),
          options_(options),
          kept_(std::move(kept)),
          bytes_(request),
          length_(request.size()),
          from_(source::bytes) {}
    operation(calls& owner, slice payload, const submit_options& options, std::shared_ptr<void> kept) noexcept
        : owner_(owner), options_(options), kept_(std::move(kept)), lent_(payload), from_(source::lent) {}
    operation(calls& owner, call_id begun, std::size_t length, const submit_options& options,
              std::shared_ptr<void> kept) noexcept
        : owner_(owner), options_(options), kept_(std::move(kept)), length_(length), id_(begun), from_(source::begun) {}

    [[nodiscard]] state start() noexcept;
    [[nodiscard]] accel::status submit(std::span<std::byte> room) noexcept;
    void end(const completion& how, std::shared_ptr<void> kept) noexcept;

    calls& owner_;
    submit_options options_;
    std::shared_ptr<void> kept_;
    std::span<const std::byte> bytes_;
    slice lent_;
    std::size_t length_ = 0;
    call_id id_;
    completion content_;
    std::coroutine_handle<> waiting_;
    operation* before_ = nullptr;  ///< in the line for slots
    operation* behind_ = nullptr;
    source from_;
    state state_ = state::fresh;
    bool has_slot_ = false;
};

/// A channel whose calls are awaited. Belongs to one thread at a time, as its channel; neither copied nor moved.
/// Every call of the channel goes through here. Nothing here allocates but the constructor. A call has one answer:
/// with `submit_options::parts` it ends with `unsupported`.
class calls {
  public:
    explicit calls(channel owned) : slots_(owned.slots()), channel_(std::move(owned)) {}
    calls(const calls&) = delete;
    calls& operator=(const calls&) = delete;
    /// As `close`. All answers must be gone.
    ~calls() { close(); }

    /// A call with `request`, which is copied into a slot: at once, or as soon as one is free. Calls that wait for a
    /// slot get them in their order. `request` and what `options` refers to stay valid until `co_await` returns.
    /// `kept` holds memory of `response_into`, say, until the call has ended and its answer is gone.
    [[nodiscard]] operation call(std::span<const std::byte> request, const submit_options& options = {},
                                 std::shared_ptr<void> kept = {}) noexcept {
        return {*this, request, options, std::move(kept)};
    }
    /// The same with a lent payload. If the coroutine may be destroyed while the call is in flight, `kept` has to own
    /// the region.
    [[nodiscard]] operation call(slice payload, const submit_options& options = {},
                                 std::shared_ptr<void> kept = {}) noexcept {
        return {*this, payload, options, std::move(kept)};
    }
    /// As `channel::begin`: for a request that is written in place, then `submit`.
    [[nodiscard]] status begin(call_view& out) noexcept { return channel_.begin(out); }
    /// A call that was begun and is not to be sent after all.
    void give_back(call_id begun) noexcept { release(begun); }
    /// Sends the first `length` bytes of a call that was begun. If that fails, the call is given back.
    [[nodiscard]] operation submit(call_id begun, std::size_t length, const submit_options& options = {},
                                   std::shared_ptr<void> kept = {}) noexcept {
        return {*this, begun, length, options, std::move(kept)};
    }

    /// Takes what has arrived, and resumes the coroutines that waited for it, on this thread. Returns how many calls
    /// ended. Never blocks; not from within a coroutine that it resumes.
    std::size_t poll() noexcept {
        std::array<completion, 32> done;
        return deliver({done.data(), channel_.poll(done)});
    }
    /// The same, but waits up to `timeout` for the first.
    std::size_t wait(std::chrono::nanoseconds timeout) noexcept {
        std::array<completion, 32> done;
        // The late answer of a call that ended early frees a slot, and is no completion.
        constexpr std::chrono::nanoseconds look = std::chrono::milliseconds{1};
        for (;;) {
            const auto longest = first_ == nullptr ? timeout : std::min(timeout, look);
            const auto now = can_go_on() ? std::chrono::nanoseconds{} : longest;
            const std::size_t ended = deliver({done.data(), channel_.wait(done, now)});
            if (ended > 0 || now >= timeout) return ended;
            timeout -= now;
        }
    }
    /// As those of a channel: poll until 0, then `arm`; when that says false, poll again.
    [[nodiscard]] int event_fd() const noexcept { return channel_.event_fd(); }
    [[nodiscard]] bool arm() noexcept { return !can_go_on() && channel_.arm(); }

    /// Closes the channel, and resumes every coroutine that waits: their calls end with `closed`. Waits up to
    /// `close_timeout` for lent memory.
    void close() noexcept {
        channel_.close();
        while (poll() > 0) {
        }
    }
    /// For its properties.
    [[nodiscard]] const channel& under() const noexcept { return channel_; }
    [[nodiscard]] channel_event take_event() noexcept { return channel_.take_event(); }

  private:
    friend class operation;
    friend class answer;
    /// What is known of the call that has a slot.
    struct slot {
        call_id id;
        operation* waiting = nullptr;  ///< null: its coroutine is gone
        std::shared_ptr<void> kept;
    };

    /// A call waits for a slot, and one may be free.
    [[nodiscard]] bool can_go_on() const noexcept { return first_ != nullptr && freed_; }
    std::size_t deliver(std::span<const completion> done) noexcept;
    std::size_t serve_line() noexcept;
    void release(call_id id) noexcept {
        (void)channel_.release(id);
        freed_ = true;
    }
    void enqueue(operation& last) noexcept;
    void dequeue(operation& one) noexcept;

    std::vector<slot> slots_;
    operation* first_ = nullptr;  ///< of the calls that wait for a slot
    operation* last_ = nullptr;
    bool freed_ = false;
    channel channel_;  // destroyed first
};

/// A coroutine that starts at once, belongs to nobody and frees itself: for handlers of a server, and for loops of a
/// program. An exception that leaves it ends the process.
struct detached {
    /// Of the compiler.
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
        gate& gate_;
        std::coroutine_handle<> waiting_;
        bool open_ = true;
    };
    [[nodiscard]] passage enter() noexcept { return passage{*this}; }

    /// Resumes those that have entered; how many. By the owner's thread.
    std::size_t run() { return resume(true); }

  private:
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

// ---------------------------------------------------------------------------------------------------------------------

inline void answer::reset() noexcept {
    if (calls* const owner = std::exchange(owner_, nullptr); owner != nullptr) owner->release(content_.id);
    kept_.reset();
}

/// Takes a slot, unless the call was begun, and sends it.
inline operation::state operation::start() noexcept {
    call_view view{id_, {}};
    if (from_ != source::begun) {
        const bool behind_others = owner_.first_ != nullptr && owner_.first_ != this;
        const accel::status none = behind_others ? accel::status::again : owner_.channel_.begin(view);
        if (none == accel::status::again) return state::in_line;
        if (none != accel::status::ok) {
            content_.status = none;
            return state::ended;
        }
    }
    id_ = view.id;
    content_.status = submit(view.request);
    if (content_.status != accel::status::ok) {
        owner_.release(id_);
        return state::ended;
    }
    owner_.slots_[id_.slot] = {id_, this, std::move(kept_)};
    return state_ = state::in_flight;
}

inline accel::status operation::submit(std::span<std::byte> room) noexcept {
    if (options_.parts != 0) return accel::status::unsupported;
    if (from_ == source::lent) return owner_.channel_.submit(id_, lent_, options_);
    if (from_ == source::bytes && !bytes_.empty())
        std::memcpy(room.data(), bytes_.data(), std::min(room.size(), bytes_.size()));
    return owner_.channel_.submit(id_, length_, options_);
}

inline void operation::await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    if (state_ == state::in_flight) return;
    state_ = state::in_line;
    owner_.enqueue(*this);
}

inline void operation::end(const completion& how, std::shared_ptr<void> kept) noexcept {
    content_ = how;
    kept_ = std::move(kept);
    has_slot_ = true;
    waiting_.resume();
}

inline operation::~operation() {
    if (state_ == state::in_line) owner_.dequeue(*this);
    if (state_ != state::in_flight) return;
    owner_.slots_[id_.slot].waiting = nullptr;
    (void)owner_.channel_.cancel(id_);
}

inline void calls::enqueue(operation& last) noexcept {
    last.before_ = std::exchange(last_, &last);
    (last.before_ == nullptr ? first_ : last.before_->behind_) = &last;
}

inline void calls::dequeue(operation& one) noexcept {
    (one.before_ == nullptr ? first_ : one.before_->behind_) = one.behind_;
    (one.behind_ == nullptr ? last_ : one.behind_->before_) = one.before_;
}

/// A coroutine that is resumed may destroy others, whose calls are in `done` too.
inline std::size_t calls::deliver(std::span<const completion> done) noexcept {
    for (const completion& each : done) {
        slot& of = slots_[each.id.slot];
        std::shared_ptr<void> kept = std::move(of.kept);
        if (operation* const waiting = std::exchange(of.waiting, nullptr); waiting != nullptr && of.id == each.id)
            waiting->end(each, std::move(kept));
        else
            release(each.id);
    }
    return done.size() + serve_line();
}

inline std::size_t calls::serve_line() noexcept {
    freed_ = false;
    std::size_t ended = 0;
    while (first_ != nullptr) {
        operation& next = *first_;
        const operation::state now = next.start();
        if (now == operation::state::in_line) break;
        dequeue(next);
        if (now != operation::state::ended) continue;
        next.state_ = now;
        ++ended;
        next.waiting_.resume();
    }
    return ended;
}

}  // namespace accel::coro
