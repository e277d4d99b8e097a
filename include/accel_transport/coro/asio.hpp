// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/channel.hpp>
#include <accel_transport/coro/calls.hpp>
#include <accel_transport/coro/gate.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

// Which Asio: the standalone library if <asio.hpp> is found, else Boost's. With ACCEL_ASIO_BOOST: Boost's. The same for
// all sources of a program.
#if !defined(ACCEL_ASIO_BOOST) && __has_include(<asio.hpp>)
#include <asio/any_io_executor.hpp>
#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_type.hpp>
#include <asio/dispatch.hpp>
#include <asio/error_code.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/version.hpp>
#if ASIO_VERSION < 102200
#error "accel_transport/coro/asio.hpp needs Asio 1.22 or newer; ACCEL_ASIO_BOOST takes Boost's"
#endif
namespace accel::detail {
namespace net = ::asio;
using net_error = ::asio::error_code;
}  // namespace accel::detail
#elif __has_include(<boost/asio/version.hpp>)
#include <boost/asio/version.hpp>
#if BOOST_ASIO_VERSION < 102200
#error "accel_transport/coro/asio.hpp needs Asio 1.22 or newer: the standalone library, or Boost 1.78"
#endif
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
namespace accel::detail {
namespace net = ::boost::asio;
using net_error = ::boost::system::error_code;
}  // namespace accel::detail
#else
#error "accel_transport/coro/asio.hpp needs Asio: the standalone library (1.22 or newer), or Boost (1.78 or newer)"
#endif

/// Calls as asynchronous operations of Asio (docs/coroutines.md). Not part of accel_transport.hpp or coro.hpp.
namespace accel {

class asio_calls;
class asio_stream;

namespace detail {

class asio_driver;

/// How one operation of Asio is cancelled. Used on the driver's executor.
struct asio_control {
    void (*cancel)(void* awaited) noexcept = nullptr;
    void* awaited = nullptr;  ///< null: not yet, or not any more
    bool cancelled = false;
};

/// An answer, and what it needs to give its slot back.
struct asio_held {
    std::shared_ptr<asio_driver> driver;
    coro::answer content;
};

}  // namespace detail

/// How a call of `asio_calls` ended, with its response. Owns its slot; move-only. May outlive its `asio_calls`, and be
/// destroyed on any thread.
class asio_answer {
  public:
    asio_answer(asio_answer&&) noexcept = default;
    asio_answer& operator=(asio_answer&& other) noexcept {
        if (this == &other) return *this;
        reset();
        held_ = std::move(other.held_);
        return *this;
    }
    ~asio_answer() { reset(); }

    [[nodiscard]] accel::status status() const noexcept { return held_.content.status(); }
    [[nodiscard]] bool ok() const noexcept { return held_.content.ok(); }
    /// The response in place; on a failure the handler's message, if any.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return held_.content.bytes(); }
    /// A part of a response; another part or the end follows. Destroying this answer lets the server send another part.
    [[nodiscard]] bool more() const noexcept { return held_.content.more(); }
    /// As `completion::tensors`. On the executor of the `asio_calls`.
    [[nodiscard]] result<std::span<tensor>, accel::status> tensors(std::span<tensor> room) const noexcept {
        return held_.content.tensors(room);
    }
    /// As `completion::metadata`. On the executor of the `asio_calls`.
    [[nodiscard]] result<std::span<const metadata_entry>, accel::status> metadata(metadata_room& room) const noexcept {
        return held_.content.metadata(room);
    }
    [[nodiscard]] const completion& content() const noexcept { return held_.content.content(); }

  private:
    friend class detail::asio_driver;
    explicit asio_answer(detail::asio_held held) noexcept : held_(std::move(held)) {}
    void reset() noexcept;
    detail::asio_held held_;
};

namespace detail {

/// A channel in an executor: polls and sleeps while operations wait for calls. All members but `start` and `run` are
/// called on the executor.
class asio_driver : public std::enable_shared_from_this<asio_driver> {
  public:
    asio_driver(net::any_io_executor executor, channel owned)
        : executor_(std::move(executor)), calls_(std::move(owned)), events_(executor_, calls_.event_fd()) {}
    asio_driver(const asio_driver&) = delete;
    asio_driver& operator=(const asio_driver&) = delete;
    ~asio_driver() { (void)events_.release(); }  // the descriptor is the channel's

    [[nodiscard]] const net::any_io_executor& executor() const noexcept { return executor_; }
    [[nodiscard]] coro::calls& calls() noexcept { return calls_; }

    /// Any thread. Awaits `make(calls)` on the executor, and then gives its answer to `done`.
    template <class Handler, class Make>
    void start(Handler done, Make make) {
        auto target = net::get_associated_executor(done, executor_);
        auto control = make_control(net::get_associated_cancellation_slot(done));
        run([self = shared_from_this(), work = net::make_work_guard(target), done = std::move(done),
             make = std::move(make), control = std::move(control)]() mutable {
            await(self, std::move(work), std::move(done), std::move(make), std::move(control));
            if (self->waiting_ > 0) self->wake();
        });
    }
    /// Any thread. On the executor at once, elsewhere soon.
    template <class Work>
    void run(Work&& work) {
        net::dispatch(executor_, std::forward<Work>(work));
    }
    /// The next part may now have a deadline, and calls in the queue may find a free slot.
    void on_release(bool part) {
        if (waiting_ > 0 && (part || calls_.can_go_on())) wake();
    }
    /// Polls soon.
    void wake() {
        if (!std::exchange(woken_, true)) net::post(executor_, turn{shared_from_this(), &asio_driver::woken_});
    }
    void close() noexcept {
        calls_.close();
        stop_sleeping();
    }

  private:
    /// The next poll. If its executor's context ends before, so does the channel: nobody else would end the calls.
    struct turn {
        turn(std::shared_ptr<asio_driver> of, bool asio_driver::*which) noexcept : driver(std::move(of)), mark(which) {}
        turn(turn&&) noexcept = default;
        turn& operator=(turn&&) = delete;
        ~turn() {
            if (driver != nullptr) driver->close();
        }
        void operator()(const net_error& = {}) {
            const std::shared_ptr<asio_driver> own = std::move(driver);
            (*own).*mark = false;
            own->drive();
        }
        std::shared_ptr<asio_driver> driver;
        bool asio_driver::*mark;
    };
    /// What an executor runs for a handler, with the handler's own executor and allocator.
    template <class Handler>
    struct ending {
        using executor_type = net::associated_executor_t<Handler, net::any_io_executor>;
        using allocator_type = net::associated_allocator_t<Handler>;
        [[nodiscard]] executor_type get_executor() const noexcept {
            return net::get_associated_executor(done, fallback);
        }
        [[nodiscard]] allocator_type get_allocator() const noexcept { return net::get_associated_allocator(done); }
        void operator()() { std::move(done)(std::move(answer)); }
        Handler done;
        asio_answer answer;
        net::any_io_executor fallback;
    };
    /// An operation that waits.
    struct counted {
        explicit counted(std::size_t& of) noexcept : count(of) { ++count; }
        counted(const counted&) = delete;
        counted& operator=(const counted&) = delete;
        ~counted() { --count; }
        std::size_t& count;
    };

    /// Handlers never run inside `poll`: they are posted.
    template <class Work, class Handler, class Make>
    static coro::detached await(std::shared_ptr<asio_driver> self, Work work, Handler done, Make make,
                                std::shared_ptr<asio_control> control) {
        const counted one(self->waiting_);
        auto awaited = make(self->calls_);
        if (control != nullptr) {
            if (control->cancelled) awaited.cancel();
            control->cancel = [](void* of) noexcept { static_cast<decltype(awaited)*>(of)->cancel(); };
            control->awaited = &awaited;
        }
        coro::answer got = co_await awaited;
        if (control != nullptr) control->awaited = nullptr;
        asio_answer answer(asio_held{self, std::move(got)});
        net::post(ending<Handler>{std::move(done), std::move(answer), self->executor_});
        (void)work;  // until here
    }

    /// A call that is cancelled may have had effects, which `total` rules out.
    template <class Slot>
    [[nodiscard]] std::shared_ptr<asio_control> make_control(Slot slot) {
        if (!slot.is_connected()) return nullptr;
        auto control = std::make_shared<asio_control>();
        slot.assign([control, weak = weak_from_this()](net::cancellation_type_t type) {
            using net::cancellation_type;
            const auto self = weak.lock();
            if (self == nullptr || !(type & (cancellation_type::terminal | cancellation_type::partial))) return;
            self->run([control, self] { self->cancel(*control); });
        });
        return control;
    }
    void cancel(asio_control& control) {
        control.cancelled = true;
        if (control.awaited == nullptr) return;
        control.cancel(control.awaited);
        wake();
    }

    /// One round; other work of the executor has its turn before the next.
    void drive() {
        const bool some = calls_.poll() > 0;
        if (waiting_ == 0) return stop_sleeping();
        some || !calls_.arm() ? wake() : sleep();
    }
    void sleep() {
        if (std::exchange(sleeping_, true)) return;
        events_.async_wait(net::posix::stream_descriptor::wait_read, turn{shared_from_this(), &asio_driver::sleeping_});
    }
    /// So that the executor's context may run out of work.
    void stop_sleeping() noexcept {
        net_error none;
        if (sleeping_) events_.cancel(none);
    }

    net::any_io_executor executor_;
    coro::calls calls_;
    net::posix::stream_descriptor events_;
    std::size_t waiting_ = 0;  ///< operations
    bool woken_ = false;       ///< a poll is posted
    bool sleeping_ = false;    ///< … or waits for the descriptor
};

/// A stream, and what it needs to end.
struct asio_parts {
    template <class Make>
    asio_parts(std::shared_ptr<asio_driver> of, Make make) : driver(std::move(of)), parts(make(driver->calls())) {}
    std::shared_ptr<asio_driver> driver;
    coro::stream parts;
};

}  // namespace detail

inline void asio_answer::reset() noexcept {
    const std::shared_ptr<detail::asio_driver> driver = held_.driver;
    if (driver == nullptr) return;
    driver->run([held = std::move(held_)]() mutable {
        const bool part = held.content.more();
        { const coro::answer ended = std::move(held.content); }
        held.driver->on_release(part);
    });
}

/// A call of `asio_calls` in parts. Each `async_next` gives one part of the response, in order; the last answer has no
/// `more`. The first operation sends the call. Destroying the stream before the last answer cancels the call;
/// operations that wait then end. Any thread; one `async_next` at a time.
class asio_stream {
  public:
    asio_stream(asio_stream&&) noexcept = default;
    asio_stream& operator=(asio_stream&& other) noexcept {
        if (this == &other) return *this;
        end();
        parts_ = std::move(other.parts_);
        return *this;
    }
    ~asio_stream() { end(); }

    /// Signature: `void(asio_answer)`. Cancelling this operation cancels the call.
    template <class Token>
    auto async_next(Token&& token) {
        return detail::net::async_initiate<Token, void(asio_answer)>(
            [](auto done, std::shared_ptr<detail::asio_parts> of) {
                detail::asio_driver& driver = *of->driver;
                driver.start(std::move(done), [of = std::move(of)](coro::calls&) { return of->parts.next(); });
            },
            token, parts_);
    }
    /// `coro::stream::send`, with an answer without bytes. `bytes` must stay valid until then. One `async_send` or
    /// `async_finish` at a time, beside an `async_next`. Signature: `void(asio_answer)`. Cancelling this operation
    /// leaves the part out, if it waits for a slot.
    template <class Token>
    auto async_send(std::span<const std::byte> bytes, Token&& token) {
        return detail::net::async_initiate<Token, void(asio_answer)>(
            [](auto done, std::shared_ptr<detail::asio_parts> of, std::span<const std::byte> part) {
                detail::asio_driver& driver = *of->driver;
                driver.start(std::move(done),
                             [of = std::move(of), part](coro::calls&) { return of->parts.send(part); });
            },
            token, parts_, bytes);
    }
    /// `coro::stream::finish` likewise.
    template <class Token>
    auto async_finish(std::span<const std::byte> bytes, Token&& token) {
        return detail::net::async_initiate<Token, void(asio_answer)>(
            [](auto done, std::shared_ptr<detail::asio_parts> of, std::span<const std::byte> part) {
                detail::asio_driver& driver = *of->driver;
                driver.start(std::move(done),
                             [of = std::move(of), part](coro::calls&) { return of->parts.finish(part); });
            },
            token, parts_, bytes);
    }

  private:
    friend class asio_calls;
    explicit asio_stream(std::shared_ptr<detail::asio_parts> parts) noexcept : parts_(std::move(parts)) {}
    void end() noexcept {
        if (parts_ == nullptr) return;
        const std::shared_ptr<detail::asio_driver> driver = parts_->driver;
        driver->run([of = std::move(parts_)] {
            of->parts.cancel();
            of->driver->on_release(true);
        });
    }
    std::shared_ptr<detail::asio_parts> parts_;
};

/// A channel whose calls are asynchronous operations of Asio, for every completion token: callbacks, `use_awaitable`,
/// `use_future`, `deferred`. Move-only.
///
/// The channel is driven on an executor that runs one function at a time: that of an `io_context` with one thread, or a
/// strand. Calls may be started on any thread. A handler runs on its associated executor; without one, on this
/// executor; never inside the function that starts the call. While no operation waits, the executor has no work.
///
/// A failure is a status of the answer, not an exception. Cancelling an operation (`terminal` or `partial`) cancels the
/// call: it ends with `cancelled`, once the transport has released lent memory. If memory runs out when a call ends,
/// the process ends.
class asio_calls {
  public:
    using executor_type = detail::net::any_io_executor;
    /// Throws what Asio throws if it cannot watch the channel's descriptor.
    asio_calls(const executor_type& executor, channel owned)
        : driver_(std::make_shared<detail::asio_driver>(executor, std::move(owned))) {}
    template <class Context>
    requires requires(Context& context) { executor_type{context.get_executor()}; }
    asio_calls(Context& context, channel owned) : asio_calls(executor_type{context.get_executor()}, std::move(owned)) {}
    asio_calls(asio_calls&&) noexcept = default;
    asio_calls& operator=(asio_calls&& other) noexcept {
        if (this == &other) return *this;
        close();
        driver_ = std::move(other.driver_);
        return *this;
    }
    /// As `close`.
    ~asio_calls() { close(); }

    [[nodiscard]] const executor_type& get_executor() const noexcept { return driver_->executor(); }

    /// A call with `request`, which is copied into a slot, at once or when one is free (`coro::calls::call`). `request`
    /// and what `options` refers to must stay valid until the handler is called. Signature: `void(asio_answer)`.
    template <class Token>
    auto async_call(std::span<const std::byte> request, const submit_options& options, Token&& token) {
        return initiate([request, options](coro::calls& to) { return to.call(request, options); },
                        std::forward<Token>(token));
    }
    template <class Token>
    auto async_call(std::span<const std::byte> request, Token&& token) {
        return async_call(request, {}, std::forward<Token>(token));
    }
    /// The same with a lent payload.
    template <class Token>
    auto async_call(slice payload, const submit_options& options, Token&& token) {
        return initiate([payload, options](coro::calls& to) { return to.call(payload, options); },
                        std::forward<Token>(token));
    }
    /// A call in parts (`coro::calls::parts`). `request` and what `options` refers to must stay
    /// valid until the first part.
    [[nodiscard]] asio_stream parts(std::span<const std::byte> request, const submit_options& options) {
        return asio_stream{
            std::make_shared<detail::asio_parts>(driver_, [&](coro::calls& to) { return to.parts(request, options); })};
    }
    [[nodiscard]] asio_stream parts(slice payload, const submit_options& options) {
        return asio_stream{
            std::make_shared<detail::asio_parts>(driver_, [&](coro::calls& to) { return to.parts(payload, options); })};
    }

    /// The channel, for its properties and events. On the executor.
    [[nodiscard]] const channel& under() const noexcept { return driver_->calls().under(); }
    [[nodiscard]] channel_event take_event() noexcept { return driver_->calls().take_event(); }
    /// Closes the channel: operations that wait end with `closed`. On the executor, or while nothing runs there. Waits
    /// up to `close_timeout` for lent memory.
    void close() noexcept {
        if (driver_ != nullptr) driver_->close();
    }

  private:
    template <class Make, class Token>
    auto initiate(Make make, Token&& token) {
        return detail::net::async_initiate<Token, void(asio_answer)>(
            [driver = driver_](auto done, Make of) { driver->start(std::move(done), std::move(of)); }, token,
            std::move(make));
    }
    std::shared_ptr<detail::asio_driver> driver_;
};

}  // namespace accel
