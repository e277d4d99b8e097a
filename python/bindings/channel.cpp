// SPDX-License-Identifier: Apache-2.0
#include "channel.hpp"

#include "errors.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include <poll.h>

namespace accel::python {

namespace {

using std::chrono::steady_clock;

/// Interrupts are noticed within this time.
constexpr std::chrono::milliseconds slice_of_wait{50};

/// For calls that a GPU keeps from ending. They stay in flight, with their memory.
constexpr std::chrono::seconds patience_of_close{5};

constexpr const char* closed_here = "this channel was closed: connect another one";

}  // namespace

channel_call::channel_call(std::shared_ptr<connection> its_home, call_view its_place) noexcept
    : home(std::move(its_home)), place(its_place) {}

channel_call::~channel_call() {
    if (!refused) home->give_back(*this);
}

part_answer::part_answer(std::shared_ptr<connection> its_home, completion&& its_part, counter its_count) noexcept
    : home_(std::move(its_home)), done_(std::move(its_part)), count_(std::move(its_count)) {
    count_->fetch_add(1, std::memory_order_relaxed);
    copies = 0;
}

part_answer::~part_answer() {
    count_->fetch_sub(1, std::memory_order_relaxed);
    home_->give_back({}, std::move(done_));
}

connection::connection(shared_context its_context, channel&& its_channel)
    : own(std::move(its_channel)),
      context_(std::move(its_context)),
      connected_(own.connected()),
      endpoint_(own.endpoint()) {}

connection::use::use(connection& of) : of_(of) {
    if (ending()) raise(status::closed, "the interpreter is ending");
    if (of.inherited()) raise(status::invalid_state, "this channel was made before fork(): a child connects its own");
    if (!of.enter_to_use())
        raise(status::invalid_state,
              "another thread is in this channel: give each thread its own, or use a ChannelPool");
}

bool connection::enter_to_release() noexcept {
    inside expected = inside::nobody;
    return inside_.compare_exchange_strong(expected, inside::releasing);
}

bool connection::enter_to_use() noexcept {
    for (;;) {
        inside found = inside::nobody;
        if (inside_.compare_exchange_strong(found, inside::using_it)) return true;
        if (found == inside::using_it) return false;
        const unlocked meanwhile;
        std::this_thread::yield();
    }
}

void connection::leave() noexcept {
    do {
        free_given_back();
        connected_.store(own.connected());
        inside_.store(inside::nobody);
    } while (has_given_back_.load() && enter_to_release());
}

void connection::free_given_back() noexcept {
    if (!has_given_back_.load(std::memory_order_acquire)) return;
    std::vector<std::pair<call_id, completion>> all;
    std::vector<call_id> unwanted;
    {
        const std::lock_guard held(given_back_lock_);
        all.swap(given_back_);
        unwanted.swap(cancelled_);
        has_given_back_.store(false, std::memory_order_release);
    }
    for (auto& [id, done] : all)
        if (id != call_id{}) own.release(id);
    for (const call_id id : unwanted) static_cast<void>(own.cancel(id));  // an old one's is harmless
}

void connection::give_back(channel_call& call) noexcept {
    if (std::exchange(call.given_back, true)) return;
    give_back(call.now == channel_call::stage::begun ? call.place.id : call_id{}, std::move(call.done));
}

void connection::give_back(call_id begun, completion&& done) noexcept {
    if (inherited()) return;  // the parent's
    --held_;
    if (enter_to_release()) {
        if (begun != call_id{}) own.release(begun);
        done.release();
        leave();
    } else {
        {
            const std::lock_guard held(given_back_lock_);
            given_back_.emplace_back(begun, std::move(done));
            has_given_back_.store(true);
        }
        if (enter_to_release()) leave();  // the other thread may just have left
    }
    notify();
}

void connection::cancel(channel_call& call) noexcept {
    if (inherited()) return;
    if (!enter_to_release()) {
        {
            const std::lock_guard held(given_back_lock_);
            cancelled_.push_back(call.place.id);
            has_given_back_.store(true);
        }
        if (enter_to_release()) leave();  // the other thread may just have left
        return;
    }
    static_cast<void>(own.cancel(call.place.id));
    leave();
}

void connection::notify() noexcept {
    if (!slot_wanted.load(std::memory_order_acquire) || ending()) return;
    const locked held;
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);  // it may be called while an exception is under way
    if (wake) {
        const nb::object called = nb::borrow(wake.get());  // which may be replaced meanwhile
        PyObject* const done = PyObject_CallNoArgs(called.ptr());
        if (done == nullptr) {
            if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) PyErr_SetInterrupt();  // is not for here
            if (PyErr_ExceptionMatches(PyExc_Exception) != 0 && PyErr_ExceptionMatches(PyExc_RuntimeError) == 0)
                PyErr_WriteUnraisable(called.ptr());
            PyErr_Clear();  // the loop has been closed
        }
        Py_XDECREF(done);
    }
    PyErr_Restore(type, value, trace);
}

std::shared_ptr<channel_call> connection::begin() {
    const auto begun = own.begin();
    if (!begun && begun.code() == status::again) return nullptr;
    if (!begun) raise(begun.code(), closed ? closed_here : own.last_error());
    ++held_;
    return std::make_shared<channel_call>(shared_from_this(), *begun);
}

std::shared_ptr<channel_call> connection::begin_by(steady_clock::time_point deadline) {
    for (;;) {
        free_given_back();
        if (auto begun = begin()) return begun;
        wait_for_slot(deadline);
    }
}

void connection::wait_for_slot(steady_clock::time_point deadline) {
    if (held_.load(std::memory_order_acquire) >= own.slots()) {
        const std::string all = std::to_string(own.slots());
        raise(status::overloaded, "all " + all +
                                      " slots are held by responses, or by arrays made of them: drop or "
                                      "release some, or connect with more slots");
    }
    const auto left = deadline - steady_clock::now();
    if (left <= steady_clock::duration::zero())
        raise(status::timed_out, "no slot was free before the deadline: connect with more slots");
    take_some(std::min<std::chrono::nanoseconds>(left, slice_of_wait));
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

bool connection::sent(const std::shared_ptr<channel_call>& call, status outcome) {
    if (outcome == status::again && call->in_parts) {
        own.release(call->place.id);
        --held_;
        call->refused = true;
        return false;
    }
    if (outcome != status::ok) raise(outcome, own.last_error());
    call->now = channel_call::stage::in_flight;
    call->self = call;
    ++in_flight_;
    --held_;
    return true;
}

bool connection::submit(const std::shared_ptr<channel_call>& call, std::size_t length, const submit_options& options) {
    submit_options tagged = options;
    tagged.tag = reinterpret_cast<std::uintptr_t>(call.get());
    return sent(call, own.submit(call->place.id, length, tagged));
}

bool connection::submit(const std::shared_ptr<channel_call>& call, slice payload, const submit_options& options) {
    submit_options tagged = options;
    tagged.tag = reinterpret_cast<std::uintptr_t>(call.get());
    return sent(call, own.submit(call->place.id, payload, tagged));
}

void connection::take_some(std::chrono::nanoseconds timeout) {
    std::array<completion, 8> arrived;
    std::size_t count = 0;
    {
        const unlocked meanwhile;
        count = own.wait(arrived, timeout);
    }
    deliver(std::span(arrived).first(count));
    take_events();
}

void connection::take_events() {
    connected_.store(own.connected());
    while (own.take_event() != channel_event::none) endpoint_ = own.endpoint();
}

void connection::deliver(std::span<completion> arrived) {
    for (completion& one : arrived) {
        auto* const at = reinterpret_cast<channel_call*>(static_cast<std::uintptr_t>(one.tag));
        if (one.more) {
            const std::shared_ptr<channel_call> call = at->self;
            if (call->abandoned) {
                static_cast<void>(own.cancel(call->place.id));
                one.release();
                continue;
            }
            ++held_;
            call->arrived.push_back(std::make_shared<part_answer>(shared_from_this(), std::move(one), call->unread));
            if (call->waiter && !std::exchange(call->listed, true)) ended.push_back(call);
            continue;
        }
        const std::shared_ptr<channel_call> call = std::move(at->self);
        call->done = std::move(one);
        call->now = channel_call::stage::ended;
        if (call->done.status != status::ok && own.scheme() == "local") {
            keep_for_local(call->lent);
            keep_for_local(call->into);
        }
        call->lent.reset();
        if (call->into) {
            call->where = call->into->whole.kind();
            if (call->done.status != status::ok) call->into.reset();
        }
        --in_flight_;
        ++held_;
        if (call->waiter && !std::exchange(call->listed, true)) ended.push_back(call);
    }
}

void connection::wait(channel_call& call) {
    while (call.now != channel_call::stage::ended) {
        free_given_back();
        take_some(slice_of_wait);
        if (call.now != channel_call::stage::ended) check_interrupt(call);
    }
}

void connection::check_interrupt(channel_call& call) {
    if (PyErr_CheckSignals() == 0) return;
    static_cast<void>(own.cancel(call.place.id));
    throw nb::python_error();
}

void connection::wait_for_part(channel_call& call) {
    while (call.now != channel_call::stage::ended && call.arrived.empty()) {
        free_given_back();
        take_some(slice_of_wait);
        check_interrupt(call);
    }
}

void connection::wait_for_room(channel_call& call) {
    free_given_back();
    // Not `wait`: a part's slot that comes free does not end it.
    if (own.arm()) {
        const unlocked meanwhile;
        pollfd event{own.event_fd(), POLLIN, 0};
        ::poll(&event, 1, static_cast<int>(slice_of_wait.count()));
    }
    poll();
    check_interrupt(call);
}

void connection::poll() {
    std::array<completion, 16> arrived;
    for (;;) {
        const std::size_t count = own.poll(arrived);
        deliver(std::span(arrived).first(count));
        if (count == 0) break;
    }
    take_events();
}

bool connection::has_slot() noexcept {
    free_given_back();
    const auto begun = own.begin();
    if (begun) own.release(begun->id);
    return begun || begun.code() != status::again;
}

void connection::close() noexcept {
    closed = true;
    if (inherited()) return;
    {
        const unlocked meanwhile;
        own.close();
    }
    // All completions are due, except of calls whose lent memory a GPU still copies.
    const auto until = steady_clock::now() + patience_of_close;
    while (in_flight_ != 0 && steady_clock::now() < until) take_some(slice_of_wait);
}

void connection::close_for_good() noexcept {
    close();
    // Nobody takes them; they keep this connection.
    for (const auto& call : ended) call->waiter.reset();
    ended.clear();
}

void connection::close_at_exit() noexcept {
    if (inherited() || closed || !enter_to_use()) return;  // a daemon thread is still in it
    close_for_good();
    leave();
}

}  // namespace accel::python
