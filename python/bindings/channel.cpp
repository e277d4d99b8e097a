// SPDX-License-Identifier: Apache-2.0
#include "channel.hpp"

#include "errors.hpp"

#include <algorithm>
#include <array>

namespace accel::python {

namespace {

using std::chrono::steady_clock;

/// Interrupts are noticed within this time.
constexpr std::chrono::milliseconds slice_of_wait{50};

constexpr const char* closed_here = "this channel was closed: connect another one";

}  // namespace

channel_call::channel_call(std::shared_ptr<connection> its_home, call_view its_place) noexcept
    : home(std::move(its_home)), place(its_place) {}

channel_call::~channel_call() {
    home->give_back(*this);
}

connection::connection(shared_context its_context, channel&& its_channel)
    : own(std::move(its_channel)), context_(std::move(its_context)) {}

connection::use::use(connection& of) : of_(of) {
    if (ending()) const unlocked stays_there;
    if (of.inherited()) raise(status::invalid_state, "this channel was made before fork(): a child connects its own");
    if (!of.enter())
        raise(status::invalid_state,
              "another thread is in this channel: give each thread its own, or use a ChannelPool");
}

void connection::leave() noexcept {
    do {
        free_given_back();
        busy_.store(false, std::memory_order_release);
    } while (has_given_back_.load(std::memory_order_acquire) && enter());
}

void connection::free_given_back() noexcept {
    if (!has_given_back_.load(std::memory_order_acquire)) return;
    std::vector<std::pair<call_id, completion>> all;
    {
        const std::lock_guard held(given_back_lock_);
        all.swap(given_back_);
        has_given_back_.store(false, std::memory_order_release);
    }
    for (auto& [id, done] : all)
        if (id != call_id{}) own.release(id);
}

void connection::give_back(channel_call& call) noexcept {
    if (inherited()) return;  // the parent's
    const bool begun = call.now == channel_call::stage::begun;
    if (enter()) {
        if (begun)
            own.release(call.place.id);
        else
            call.done.release();
        leave();
    } else {
        {
            const std::lock_guard held(given_back_lock_);
            given_back_.emplace_back(begun ? call.place.id : call_id{}, std::move(call.done));
            has_given_back_.store(true, std::memory_order_release);
        }
        if (enter()) leave();  // the other thread may just have left
    }
    notify();
}

void connection::cancel(channel_call& call) noexcept {
    if (inherited() || !enter()) return;
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
        PyObject* const done = PyObject_CallNoArgs(wake.get().ptr());
        if (done == nullptr) PyErr_Clear();  // the loop has been closed
        Py_XDECREF(done);
    }
    PyErr_Restore(type, value, trace);
}

std::shared_ptr<channel_call> connection::begin() {
    const auto begun = own.begin();
    if (!begun && begun.code() == status::again) return nullptr;
    if (!begun) raise(begun.code(), closed ? closed_here : own.last_error());
    return std::make_shared<channel_call>(shared_from_this(), *begun);
}

std::shared_ptr<channel_call> connection::begin_by(steady_clock::time_point deadline) {
    for (;;) {
        free_given_back();
        if (auto begun = begin()) return begun;
        if (in_flight_ == 0 && own.statistics().quarantined == 0) {
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
}

void connection::sent(const std::shared_ptr<channel_call>& call, status outcome) {
    if (outcome != status::ok) raise(outcome, own.last_error());
    call->now = channel_call::stage::in_flight;
    call->self = call;
    ++in_flight_;
}

void connection::submit(const std::shared_ptr<channel_call>& call, std::size_t length, const submit_options& options) {
    submit_options tagged = options;
    tagged.tag = reinterpret_cast<std::uintptr_t>(call.get());
    sent(call, own.submit(call->place.id, length, tagged));
}

void connection::submit(const std::shared_ptr<channel_call>& call, slice payload, const submit_options& options) {
    submit_options tagged = options;
    tagged.tag = reinterpret_cast<std::uintptr_t>(call.get());
    sent(call, own.submit(call->place.id, payload, tagged));
}

void connection::take_some(std::chrono::nanoseconds timeout) {
    std::array<completion, 8> arrived;
    std::size_t count = 0;
    {
        const unlocked meanwhile;
        count = own.wait(arrived, timeout);
    }
    deliver(std::span(arrived).first(count));
    while (own.take_event() != channel_event::none) {
    }
}

void connection::deliver(std::span<completion> arrived) {
    for (completion& one : arrived) {
        auto* const at = reinterpret_cast<channel_call*>(static_cast<std::uintptr_t>(one.tag));
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
        if (call->waiter) ended.push_back(call);
    }
}

void connection::wait(channel_call& call) {
    while (call.now != channel_call::stage::ended) {
        take_some(slice_of_wait);
        if (call.now == channel_call::stage::ended || PyErr_CheckSignals() == 0) continue;
        static_cast<void>(own.cancel(call.place.id));
        throw nb::python_error();
    }
}

void connection::poll() {
    std::array<completion, 16> arrived;
    for (;;) {
        const std::size_t count = own.poll(arrived);
        deliver(std::span(arrived).first(count));
        if (count == 0) break;
    }
    while (own.take_event() != channel_event::none) freed_slots = true;
    if (const auto stale = own.statistics().stale; stale_ != stale) {
        stale_ = stale;
        freed_slots = true;
    }
}

void connection::close() noexcept {
    closed = true;
    if (inherited()) return;
    {
        const unlocked meanwhile;
        own.close();
    }
    for (std::array<completion, 16> arrived; in_flight_ != 0;) {
        const std::size_t count = own.wait(arrived, slice_of_wait);
        deliver(std::span(arrived).first(count));
    }
}

void connection::close_at_exit() noexcept {
    if (inherited() || closed || !enter()) return;  // a daemon thread is still in it
    close();
    leave();
}

}  // namespace accel::python
