// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

/// Calls of a channel, awaited by coroutines.
namespace accel::coro {

class calls;
class stream;

/// How an awaited call ended, with its response. Owns its slot; move-only; must not outlive its `calls`.
class answer {
  public:
    answer(answer&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          content_(std::move(other.content_)),
          kept_(std::move(other.kept_)) {}
    answer& operator=(answer&& other) noexcept {
        if (this == &other) return *this;
        reset();
        owner_ = std::exchange(other.owner_, nullptr);
        content_ = std::move(other.content_);
        kept_ = std::move(other.kept_);
        return *this;
    }
    ~answer() { reset(); }

    [[nodiscard]] accel::status status() const noexcept { return content_.status; }
    [[nodiscard]] bool ok() const noexcept { return content_.status == accel::status::ok; }
    /// The response in place; on a failure the handler's message, if any.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return content_.response; }
    /// A part of a response; another part or the end follows. Releasing this answer lets the server send another part.
    [[nodiscard]] bool more() const noexcept { return content_.more; }
    /// As `completion::tensors`.
    [[nodiscard]] result<std::span<tensor>, accel::status> tensors(std::span<tensor> room) const noexcept {
        return content_.tensors(room);
    }
    /// As `completion::metadata`.
    [[nodiscard]] result<std::span<const metadata_entry>, accel::status> metadata(metadata_room& room) const noexcept {
        return content_.metadata(room);
    }
    [[nodiscard]] const completion& content() const noexcept { return content_; }

  private:
    friend class operation;
    friend class stream;
    answer(calls* owner, completion content, std::shared_ptr<void> kept) noexcept
        : owner_(owner), content_(std::move(content)), kept_(std::move(kept)) {}
    void reset() noexcept;

    calls* owner_;  ///< null: the answer has no slot
    completion content_;
    std::shared_ptr<void> kept_;
};

/// One awaited call of `calls`. `co_await` gives an `answer`. If the coroutine is destroyed meanwhile, the call is
/// cancelled, and `kept` lives until the call has ended.
class [[nodiscard]] operation {
  public:
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;
    ~operation();

    /// Ends the call early, with `cancelled`, as `channel::cancel` does: whoever awaits it resumes in a later `poll`,
    /// when the transport has released lent memory. Before `co_await`: the call is not sent.
    void cancel() noexcept;

    [[nodiscard]] bool await_ready() noexcept { return start() == state::ended; }
    void await_suspend(std::coroutine_handle<> waiting) noexcept;
    [[nodiscard]] answer await_resume() noexcept {
        state_ = state::ended;
        return {has_slot_ ? &owner_ : nullptr, std::move(content_), std::move(kept_)};
    }

  private:
    friend class beginning;
    friend class calls;
    friend class stream;
    enum class state : unsigned char { fresh, in_line, in_flight, ended };
    enum class source : unsigned char { bytes, lent, begun, none, part };
    explicit operation(calls& owner) noexcept : owner_(owner), from_(source::none) {}
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
    operation(stream& of, std::span<const std::byte> part, bool last) noexcept;

    [[nodiscard]] state start() noexcept;
    [[nodiscard]] state start_part() noexcept;
    [[nodiscard]] accel::status submit(std::span<std::byte> room) noexcept;
    void end(completion how, std::shared_ptr<void> kept) noexcept;

    calls& owner_;
    submit_options options_;
    std::shared_ptr<void> kept_;
    std::span<const std::byte> bytes_;
    slice lent_;
    std::size_t length_ = 0;
    call_id id_;
    std::span<std::byte> room_;
    completion content_;
    std::coroutine_handle<> waiting_;
    operation* before_ = nullptr;  ///< in the queue for slots
    operation* behind_ = nullptr;
    stream* of_ = nullptr;  ///< not null: this is its call, or a part of its request
    source from_;
    state state_ = state::fresh;
    bool has_slot_ = false;
    bool cancelled_ = false;  ///< before it was sent
};

/// A wait for a slot of `calls`. `co_await` gives the begun call, or why there is none: never `again`. If the coroutine
/// is destroyed meanwhile, nothing was begun.
class [[nodiscard]] beginning {
  public:
    beginning(const beginning&) = delete;
    beginning& operator=(const beginning&) = delete;
    ~beginning() = default;

    [[nodiscard]] bool await_ready() noexcept { return call_.await_ready(); }
    void await_suspend(std::coroutine_handle<> waiting) noexcept { call_.await_suspend(waiting); }
    [[nodiscard]] result<call_view, status> await_resume() noexcept {
        call_.state_ = operation::state::ended;
        if (call_.content_.status != status::ok) return call_.content_.status;
        return call_view{call_.id_, call_.room_};
    }

  private:
    friend class calls;
    explicit beginning(calls& owner) noexcept : call_(owner) {}
    operation call_;
};

/// One call of `calls` in parts. Each `co_await next()` gives one part of the response, in order; the last `answer` has
/// no `more`, and after that `next` gives `invalid_state`. The first `next` or `send` sends the call. Destroying the
/// stream before the last answer cancels the call. Belongs to the thread of its `calls`.
class [[nodiscard]] stream {
  public:
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    ~stream();

    /// `co_await` gives the next answer.
    class [[nodiscard]] step {
      public:
        explicit step(stream& of) noexcept : of_(of) {}
        step(const step&) = delete;
        step& operator=(const step&) = delete;
        /// The coroutine may be destroyed: then nobody waits.
        ~step() { of_.call_.waiting_ = {}; }
        [[nodiscard]] bool await_ready() noexcept { return of_.is_ready(); }
        void await_suspend(std::coroutine_handle<> waiting) noexcept { of_.wait(waiting); }
        [[nodiscard]] answer await_resume() noexcept { return of_.take(); }
        /// As `stream::cancel`.
        void cancel() noexcept { of_.cancel(); }

      private:
        stream& of_;
    };
    /// At most one wait at a time.
    [[nodiscard]] step next() noexcept { return step{*this}; }
    /// Sends a part of the request, with `submit_options::continues`, once a slot is free: before calls that wait in
    /// the queue. `co_await` gives an answer without bytes, whose status says how that ended: `ok`, or `invalid_state`,
    /// as `channel::begin_part`. `bytes` are copied, and must stay valid until then. At most one wait at a time, beside
    /// that of `next`.
    [[nodiscard]] operation send(std::span<const std::byte> bytes) noexcept { return {*this, bytes, false}; }
    /// The same with the last part, which may be empty.
    [[nodiscard]] operation finish(std::span<const std::byte> bytes = {}) noexcept { return {*this, bytes, true}; }
    /// Ends the call early, as `operation::cancel` does; `next` gives what has arrived, and then the end.
    void cancel() noexcept { call_.cancel(); }

  private:
    friend class calls;
    friend class operation;
    template <class Request>
    stream(calls& owner, Request request, const submit_options& options, std::shared_ptr<void> kept) noexcept
        : call_(owner, request, options, std::move(kept)) {
        call_.of_ = this;
    }
    [[nodiscard]] bool is_ready() noexcept;
    void wait(std::coroutine_handle<> waiting) noexcept;
    [[nodiscard]] answer take() noexcept;
    void arrive(completion one, std::shared_ptr<void> kept) noexcept;

    static constexpr std::uint32_t none = ~std::uint32_t{0};
    operation call_;
    std::uint32_t first_ = none;  ///< first slot with a completion that nobody has taken
    std::uint32_t last_ = none;
};

/// A channel whose calls are awaited. Belongs to one thread at a time, as the channel does; neither copied nor moved.
/// Every call of the channel must go through this object. Only the constructor allocates. `call` gives one answer, and
/// ends with `unsupported` if `submit_options::parts` or `continues` is set; `parts` gives several.
class calls {
  public:
    explicit calls(channel owned) : slots_(owned.slots()), channel_(std::move(owned)) {}
    calls(const calls&) = delete;
    calls& operator=(const calls&) = delete;
    /// As `close`. All answers must have been destroyed.
    ~calls() { close(); }

    /// A call with `request`, which is copied into a slot, at once or when one is free. Calls get slots in the order in
    /// which they were awaited. `request` and what `options` refers to must stay valid until `co_await` returns.
    /// `kept` is held until the call has ended and its answer is destroyed: for example the memory of `response_into`.
    [[nodiscard]] operation call(std::span<const std::byte> request, const submit_options& options = {},
                                 std::shared_ptr<void> kept = {}) noexcept {
        return {*this, request, options, std::move(kept)};
    }
    /// The same with a lent payload. If the coroutine may be destroyed while the call is in flight, `kept` must own the
    /// region.
    [[nodiscard]] operation call(slice payload, const submit_options& options = {},
                                 std::shared_ptr<void> kept = {}) noexcept {
        return {*this, payload, options, std::move(kept)};
    }
    /// A call in parts: its response comes with up to `options.parts` unread, or its request `continues`, or both.
    /// Waits in the queue until there are slots for all unread parts. Otherwise as `call`. `invalid_argument`: the
    /// channel has too few slots.
    [[nodiscard]] stream parts(std::span<const std::byte> request, const submit_options& options,
                               std::shared_ptr<void> kept = {}) noexcept {
        return {*this, request, options, std::move(kept)};
    }
    [[nodiscard]] stream parts(slice payload, const submit_options& options, std::shared_ptr<void> kept = {}) noexcept {
        return {*this, payload, options, std::move(kept)};
    }
    /// Takes a slot for a request that is written in place and then sent by `submit`, at once or in the order of the
    /// queue.
    [[nodiscard]] beginning begin() noexcept { return beginning{*this}; }
    /// Releases a begun call that will not be sent.
    void give_back(call_id begun) noexcept { release(begun); }
    /// Sends the first `length` bytes of a begun call. If that fails, the call is released.
    [[nodiscard]] operation submit(call_id begun, std::size_t length, const submit_options& options = {},
                                   std::shared_ptr<void> kept = {}) noexcept {
        return {*this, begun, length, options, std::move(kept)};
    }

    /// Takes what has arrived, and resumes the waiting coroutines on this thread. Returns the number of calls that
    /// ended. Never blocks. Must not be called from a coroutine that `poll` resumes.
    std::size_t poll() noexcept { return deliver({done_.data(), channel_.poll(done_)}); }
    /// The same, but waits up to `timeout` for the first call to end.
    std::size_t wait(std::chrono::nanoseconds timeout) noexcept {
        // The late answer of a call that ended early frees a slot but is not a completion.
        constexpr std::chrono::nanoseconds look = std::chrono::milliseconds{1};
        for (;;) {
            const auto longest = first_ == nullptr ? timeout : std::min(timeout, look);
            const auto now = can_go_on() ? std::chrono::nanoseconds{} : longest;
            const std::size_t ended = deliver({done_.data(), channel_.wait(done_, now)});
            if (ended > 0 || now >= timeout) return ended;
            timeout -= now;
        }
    }
    /// As those of a channel: poll until 0, then `arm`; if `arm` returns false, poll again.
    [[nodiscard]] int event_fd() const noexcept { return channel_.event_fd(); }
    [[nodiscard]] bool arm() noexcept { return !can_go_on() && channel_.arm(); }
    /// A call waits in the queue, and `poll` may send it: a slot was released, or the call was cancelled.
    [[nodiscard]] bool can_go_on() const noexcept { return first_ != nullptr && freed_; }

    /// Closes the channel and resumes every waiting coroutine; the calls end with `closed`. Waits up to `close_timeout`
    /// for lent memory.
    void close() noexcept {
        channel_.close();
        while (poll() > 0) {
        }
    }
    /// The channel, for its properties.
    [[nodiscard]] const channel& under() const noexcept { return channel_; }
    [[nodiscard]] channel_event take_event() noexcept { return channel_.take_event(); }

  private:
    friend class operation;
    friend class answer;
    friend class stream;
    /// The call of a slot, and a stream's completion whose bytes are in the slot.
    struct slot {
        call_id id;
        operation* waiting = nullptr;  ///< null: the coroutine was destroyed
        std::shared_ptr<void> kept;
        completion unread;
        std::uint32_t behind = 0;  ///< slot of the stream's next completion
    };

    std::size_t deliver(std::span<completion> done) noexcept;
    std::size_t serve_line() noexcept;
    void release(call_id begun) noexcept {
        (void)channel_.release(begun);
        freed_ = true;
    }
    void release(completion& ended) noexcept {
        ended.release();
        freed_ = true;
    }
    void enqueue(operation& last) noexcept { enqueue(last_, last); }
    void enqueue(operation* before, operation& one) noexcept;
    void dequeue(operation& one) noexcept;
    void move_to_front(operation& one) noexcept;

    std::vector<slot> slots_;
    operation* first_ = nullptr;  ///< first call that waits for a slot
    operation* last_ = nullptr;
    bool freed_ = false;
    std::array<completion, 32> done_;  ///< used by `poll`; a member, because clearing it takes 500 instructions
    channel channel_;                  // destroyed first
};

// ---------------------------------------------------------------------------------------------------------------------

inline void answer::reset() noexcept {
    if (calls* const owner = std::exchange(owner_, nullptr); owner != nullptr) owner->release(content_);
    kept_.reset();
}

/// Takes a slot, unless the call was already begun, and sends the call.
inline operation::state operation::start() noexcept {
    if (cancelled_) {
        if (from_ == source::begun) owner_.release(id_);
        content_.status = accel::status::cancelled;
        return state::ended;
    }
    if (from_ == source::part) return start_part();
    if (from_ != source::begun) {
        if (owner_.first_ != nullptr && owner_.first_ != this) return state::in_line;
        const auto begun = owner_.channel_.begin();
        if (begun.code() == accel::status::again) return state::in_line;
        if (!begun) {
            content_.status = begun.error();
            return state::ended;
        }
        id_ = begun->id;
        room_ = begun->request;
        if (from_ == source::none) return state::ended;
    }
    content_.status = submit(room_);
    if (content_.status == accel::status::again && of_ != nullptr) {  // too few slots for the parts
        (void)owner_.channel_.release(id_);
        return state::in_line;
    }
    if (content_.status != accel::status::ok) {
        owner_.release(id_);
        return state::ended;
    }
    calls::slot& own = owner_.slots_[id_.slot];
    own.id = id_;
    own.waiting = this;
    own.kept = std::move(kept_);
    return state_ = state::in_flight;
}

inline operation::operation(stream& of, std::span<const std::byte> part, bool last) noexcept
    : owner_(of.call_.owner_), bytes_(part), of_(&of), from_(source::part) {
    options_.continues = !last;
}

/// Sends the call first, unless it was sent before. While the call waits for a slot, the part waits behind it.
inline operation::state operation::start_part() noexcept {
    operation& call = of_->call_;
    if (call.state_ == state::fresh) {
        call.state_ = call.start();
        if (call.state_ == state::in_line) owner_.enqueue(call);
    }
    if (call.state_ == state::in_line) return state::in_line;
    const operation* const first = owner_.first_;
    if (first != nullptr && first != this && first->from_ == source::part) return state::in_line;
    const auto begun = owner_.channel_.begin_part(call.id_);
    if (begun.code() == accel::status::again) return state::in_line;
    content_.status = begun.code();
    if (!begun) return state::ended;
    if (!bytes_.empty())
        std::memcpy(begun->request.data(), bytes_.data(), std::min(begun->request.size(), bytes_.size()));
    content_.status = owner_.channel_.submit_part(begun->id, bytes_.size(), {.last = !options_.continues});
    if (content_.status != accel::status::ok) owner_.release(begun->id);
    return state::ended;
}

inline accel::status operation::submit(std::span<std::byte> room) noexcept {
    if ((options_.parts != 0 || options_.continues) && of_ == nullptr) return accel::status::unsupported;
    if (from_ == source::lent) return owner_.channel_.submit(id_, lent_, options_);
    if (from_ == source::bytes && !bytes_.empty())
        std::memcpy(room.data(), bytes_.data(), std::min(room.size(), bytes_.size()));
    return owner_.channel_.submit(id_, length_, options_);
}

inline void operation::await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    if (state_ == state::in_flight) return;
    state_ = state::in_line;
    if (from_ != source::part) return owner_.enqueue(*this);
    // Calls that are under way go before those that wait, which may wait for their slots; among each other in order.
    operation* before = of_->call_.state_ == state::in_line ? &of_->call_ : nullptr;
    if (before == nullptr)
        for (operation* each = owner_.first_; each != nullptr && each->from_ == source::part; each = each->behind_)
            before = each;
    owner_.enqueue(before, *this);
}

inline void operation::end(completion how, std::shared_ptr<void> kept) noexcept {
    content_ = std::move(how);
    kept_ = std::move(kept);
    has_slot_ = true;
    waiting_.resume();
}

inline void operation::cancel() noexcept {
    if (state_ == state::in_flight) return static_cast<void>(owner_.channel_.cancel(id_));
    cancelled_ = true;
    if (state_ == state::in_line) owner_.move_to_front(*this);
}

inline operation::~operation() {
    if (state_ == state::in_line) owner_.dequeue(*this);
    if (state_ != state::in_flight) return;
    owner_.slots_[id_.slot].waiting = nullptr;
    (void)owner_.channel_.cancel(id_);
}

inline bool stream::is_ready() noexcept {
    using state = operation::state;
    if (call_.state_ != state::fresh) return call_.state_ == state::ended || first_ != none;
    return call_.start() == state::ended;
}

inline void stream::wait(std::coroutine_handle<> waiting) noexcept {
    call_.waiting_ = waiting;
    if (call_.state_ != operation::state::fresh) return;
    call_.state_ = operation::state::in_line;
    call_.owner_.enqueue(call_);
}

/// Without an unread completion: the call could not be sent, which is reported once, or has ended.
inline answer stream::take() noexcept {
    calls& owner = call_.owner_;
    if (first_ == none) {
        call_.state_ = operation::state::ended;
        completion why;
        why.status = std::exchange(call_.content_.status, accel::status::invalid_state);
        return {nullptr, std::move(why), std::move(call_.kept_)};
    }
    completion one = std::move(owner.slots_[first_].unread);
    first_ = first_ == last_ ? none : owner.slots_[first_].behind;
    if (one.more) return {&owner, std::move(one), {}};
    call_.state_ = operation::state::ended;
    call_.content_.status = accel::status::invalid_state;
    return {&owner, std::move(one), std::move(call_.kept_)};
}

inline void stream::arrive(completion one, std::shared_ptr<void> kept) noexcept {
    const std::uint32_t slot = one.id.slot;
    if (first_ == none)
        first_ = slot;
    else
        call_.owner_.slots_[last_].behind = slot;
    last_ = slot;
    const bool last = !one.more;
    call_.owner_.slots_[slot].unread = std::move(one);
    if (last) {
        call_.kept_ = std::move(kept);
        call_.has_slot_ = true;  // nothing is left to cancel
    }
    if (call_.waiting_) std::exchange(call_.waiting_, {}).resume();
}

inline stream::~stream() {
    while (first_ != none) (void)take();
    if (call_.has_slot_) call_.state_ = operation::state::ended;
}

/// Null: in front of all.
inline void calls::enqueue(operation* before, operation& one) noexcept {
    one.before_ = before;
    one.behind_ = std::exchange(before == nullptr ? first_ : before->behind_, &one);
    (one.behind_ == nullptr ? last_ : one.behind_->before_) = &one;
}

inline void calls::dequeue(operation& one) noexcept {
    (one.before_ == nullptr ? first_ : one.before_->behind_) = one.behind_;
    (one.behind_ == nullptr ? last_ : one.behind_->before_) = one.before_;
}

/// The next `poll` looks at it.
inline void calls::move_to_front(operation& one) noexcept {
    dequeue(one);
    enqueue(nullptr, one);
    freed_ = true;
}

/// A resumed coroutine may destroy other coroutines, whose calls are in `done` too.
inline std::size_t calls::deliver(std::span<completion> done) noexcept {
    for (completion& each : done) {
        slot& of = slots_[each.call.slot];
        std::shared_ptr<void> kept;
        if (!each.more) kept = std::move(of.kept);
        operation* const waiting = of.id == each.call ? of.waiting : nullptr;
        if (!each.more) of.waiting = nullptr;
        if (waiting == nullptr)
            release(each);
        else if (waiting->of_ != nullptr)
            waiting->of_->arrive(std::move(each), std::move(kept));
        else
            waiting->end(std::move(each), std::move(kept));
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
        if (next.waiting_) std::exchange(next.waiting_, {}).resume();
    }
    return ended;
}

}  // namespace accel::coro
