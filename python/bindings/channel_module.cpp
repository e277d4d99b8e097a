// SPDX-License-Identifier: Apache-2.0
#include "array_input.hpp"
#include "channel.hpp"
#include "channel_module.hpp"
#include "errors.hpp"
#include "options.hpp"

#include <accel_transport/options.hpp>

#include <algorithm>
#include <cstring>
#include <future>
#include <optional>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace accel::python {

namespace {

using std::chrono::steady_clock;

/// The Python object: its end cancels the call, if it is in flight.
struct py_call {
    explicit py_call(std::shared_ptr<channel_call> its_own) noexcept : own(std::move(its_own)) {}
    py_call(py_call&&) noexcept = default;
    py_call& operator=(py_call&&) = delete;
    ~py_call() {
        if (own && own->now == channel_call::stage::in_flight && !ending()) own->home->cancel(*own);
    }
    std::shared_ptr<channel_call> own;  ///< null: given up, or its response was taken
};

std::chrono::nanoseconds call_timeout_in(const std::string& uri) {
    const std::string key = "call_timeout=";
    auto at = uri.find('?');
    while (at != std::string::npos) {
        const auto end = uri.find('&', at + 1);
        const std::string option = uri.substr(at + 1, end == std::string::npos ? end : end - at - 1);
        if (option.starts_with(key)) {
            auto parsed = parse_duration(option.substr(key.size()));
            if (parsed && parsed->count() > 0) return *parsed;
        }
        at = end;
    }
    return channel_options{}.call_timeout;
}

/// `channel::connect` cannot be ended. So the main thread, which interrupts reach, waits for another one that connects,
/// and leaves it behind.
result<channel> connect_or_interrupt(const shared_context& shared, const std::string& uri) {
    if (!is_main_thread()) {
        const unlocked meanwhile;
        return channel::connect(*shared, uri);
    }
    const auto answer = std::make_shared<std::promise<result<channel>>>();
    std::future<result<channel>> made = answer->get_future();
    run_beside([shared, uri, answer] { answer->set_value(channel::connect(*shared, uri)); });
    for (;;) {
        {
            const unlocked meanwhile;
            if (made.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) break;
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return made.get();
}

void connect(py_channel* self, nb::handle context, const std::string& uri) {
    const shared_context& shared = context_of(context);
    auto own = std::make_shared<connection>(shared, take(connect_or_interrupt(shared, uri)));
    close_at_exit(own);
    new (self) py_channel(std::move(own), call_timeout_in(uri));
}

std::shared_ptr<channel_call> submitted(py_channel& self, nb::handle data, call_options& options) {
    const payload_input input(data);
    const auto timeout = options.native.timeout.count() != 0 ? options.native.timeout : self.call_timeout;
    const auto deadline = steady_clock::now() + timeout;
    auto call = self.own->begin_by(deadline);
    options.native.timeout =
        std::max<std::chrono::nanoseconds>(deadline - steady_clock::now(), std::chrono::nanoseconds(1));
    static_cast<void>(send(*self.own, call, input, options));
    return call;
}

response call(py_channel& self, nb::handle data, std::optional<double> timeout, nb::handle target, nb::handle metadata,
              nb::handle trace, nb::handle baggage, nb::handle into) {
    if (PyIter_Check(data.ptr()) != 0) {  // a request in parts
        const nb::object made =
            nb::find(self).attr("_call_in_parts")(data, timeout, target, metadata, trace, baggage, into);
        return nb::cast<response&>(made);
    }
    call_options options(timeout, target, metadata, trace, baggage, into);
    const connection::use used(*self.own);
    auto sent = submitted(self, data, options);
    self.own->wait(*sent);
    return response_of(std::move(sent));
}

py_call submit(py_channel& self, nb::handle data, std::optional<double> timeout, nb::handle target, nb::handle metadata,
               nb::handle trace, nb::handle baggage, nb::handle into) {
    call_options options(timeout, target, metadata, trace, baggage, into);
    const connection::use used(*self.own);
    return py_call(submitted(self, data, options));
}

/// For an event loop: never waits. None: no slot is free.
std::optional<py_call> submit_for(py_channel& self, nb::handle future, nb::handle data, std::optional<double> timeout,
                                  nb::handle target, nb::handle metadata, nb::handle trace, nb::handle baggage,
                                  nb::handle into) {
    call_options options(timeout, target, metadata, trace, baggage, into);
    const connection::use used(*self.own);
    const payload_input input(data);
    self.own->free_given_back();
    auto call = self.own->begin();
    if (!call) return std::nullopt;
    static_cast<void>(send(*self.own, call, input, options));
    call->waiter = reference(nb::borrow(future));
    return py_call(std::move(call));
}

/// A future, and its response or exception; or None: look at the stream.
nb::tuple end_of(const std::shared_ptr<channel_call>& call) {
    const nb::object future = nb::borrow(call->waiter.get());
    if (call->in_parts) return nb::make_tuple(future, nb::none());
    const call_outcome& outcome = call->outcome();
    if (outcome.status == status::ok) return nb::make_tuple(future, nb::cast(response{call}));
    const std::string_view text(reinterpret_cast<const char*>(outcome.response.data()), outcome.response.size());
    return nb::make_tuple(future, exception_of(outcome.status, text, outcome.code));
}

/// For an event loop: the futures of calls that have ended, each with its response or exception.
nb::list poll(py_channel& self) {
    std::vector<std::shared_ptr<channel_call>> ended;
    {
        const connection::use used(*self.own);
        self.own->poll();
        ended.swap(self.own->ended);
    }
    nb::list out;
    try {
        for (const auto& call : ended) out.append(end_of(call));
    } catch (...) {  // an interrupt, or no memory: they end with the next look
        auto& all = self.own->ended;
        all.insert(all.begin(), ended.begin(), ended.end());
        throw;
    }
    for (const auto& call : ended) {
        call->listed = false;
        if (call->now != channel_call::stage::ended) continue;
        call->waiter.reset();
        // Its `Call` may be kept, by a traceback for one.
        if (!call->in_parts && call->outcome().status != status::ok) self.own->give_back(*call);
    }
    return out;
}

bool arm(py_channel& self) {
    const connection::use used(*self.own);
    return self.own->own.arm();
}

py_call begin(py_channel& self) {
    const connection::use used(*self.own);
    return py_call(self.own->begin_by(steady_clock::now() + self.call_timeout));
}

void close(py_channel& self) {
    if (self.own->closed || self.own->inherited()) return;
    const connection::use used(*self.own);
    self.own->close();
}

nb::dict statistics(const py_channel& self) {
    const connection::use used(*self.own);
    const channel_statistics now = self.own->own.statistics();
    nb::dict out;
    out["submitted"] = now.submitted;
    out["completed"] = now.completed;
    out["stale"] = now.stale;
    out["reconnects"] = now.reconnects;
    out["quarantined"] = now.quarantined;
    return out;
}

channel_call& open(const py_call& self) {
    if (!self.own) raise(status::invalid_state, "this call was given up, or its response was taken before");
    return *self.own;
}

channel_call& begun(const py_call& self) {
    channel_call& call = open(self);
    if (call.now != channel_call::stage::begun)
        raise(status::invalid_state, "this call has been submitted: begin another one");
    return call;
}

nb::object buffer_of(const py_call& self) {
    const channel_call& call = begun(self);
    return view_of(bytes_array(call.place.request, false, {}, pin(self.own)));
}

array place(const py_call& self, nb::handle shape, nb::handle type) {
    const auto [one, length] = place_one(shape, type);  // runs Python, which may submit the call
    channel_call& call = begun(self);
    if (length > call.place.request.size())
        raise(status::message_too_large, "the tensor does not fit: connect with a larger request_bytes");
    std::memset(call.place.request.data(), 0, one.offset);  // not bytes of earlier requests
    call.placed = one;
    call.placed_bytes = length;
    return tensor_array(one, call.place.request, false, {}, pin(self.own));
}

void submit_begun(py_call& self, std::optional<std::size_t> length, std::optional<double> timeout, nb::handle target,
                  nb::handle metadata, nb::handle trace, nb::handle baggage, nb::handle into) {
    call_options options(timeout, target, metadata, trace, baggage, into);
    connection& home = *open(self).home;
    const connection::use used(home);
    channel_call& call = begun(self);
    if (!length && call.placed_bytes == 0)
        raise(status::invalid_argument, "submit() needs the length of the request, or a tensor placed by tensor()");
    if (!length) options.native.tensors = std::span(&call.placed, 1);
    call.into = options.into;
    call.copies = 0;
    static_cast<void>(home.submit(self.own, length.value_or(call.placed_bytes), options.native));
}

response wait(py_call& self) {
    open(self);
    const std::shared_ptr<channel_call> call = self.own;  // another thread may give it up meanwhile
    if (call->now == channel_call::stage::begun) raise(status::invalid_state, "submit the call before waiting for it");
    if (call->waiter) raise(status::invalid_state, "this call belongs to an event loop: await it there");
    if (call->now == channel_call::stage::in_flight) {
        const connection::use used(*call->home);
        call->home->wait(*call);
    }
    if (self.own != call) raise(status::invalid_state, "another thread has given this call up, or taken its response");
    return response_of(std::exchange(self.own, nullptr));
}

bool done(const py_call& self) {
    open(self);
    const std::shared_ptr<channel_call> call = self.own;
    if (call->now == channel_call::stage::in_flight) {
        const connection::use used(*call->home);
        call->home->poll();
    }
    return call->now == channel_call::stage::ended;
}

void cancel(const py_call& self) {
    if (self.own && self.own->now == channel_call::stage::in_flight) self.own->home->cancel(*self.own);
}

void give_up(py_call& self) {
    cancel(self);
    self.own.reset();
}


void add_call(nb::module_& module) {
    nb::class_<py_call>(
        module, "Call",
        "A call of a channel, from `begin` or `submit`. Dropping it cancels the call. It belongs to the "
        "thread of its channel.")
        .def_prop_ro("buffer", &buffer_of, nb::sig("def buffer(self) -> memoryview"),
                     "Room for the request, to be written in place, before `submit`. Views of it keep the slot.")
        .def("tensor", &place, nb::arg("shape"), nb::arg("dtype"),
             nb::sig("def tensor(self, shape: int | collections.abc.Sequence[int], dtype: object) -> Tensor"),
             "Room for a request that is one tensor, to be written in place; then `submit()` describes and sends it.")
        .def("submit", &submit_begun, nb::arg("length") = nb::none(), CALL_ARGUMENTS,
             nb::sig("def submit(self, length: int | None = None, " CALL_SIGNATURE ") -> None"),
             "Sends the first `length` bytes of `buffer`, or the tensor of `tensor`.")
        .def("wait", &wait, "Waits for the response, once. Raises if the call failed.")
        .def_prop_ro("done", &done, "Whether `wait` returns at once.")
        .def("cancel", &cancel, "Ends the call early, with Cancelled; the server's handler is notified.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Call"))
        .def(
            "__exit__", [](py_call& self, const nb::args&) { give_up(self); },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace

bool send(connection& to, const std::shared_ptr<channel_call>& call, const payload_input& input,
          call_options& options) {
    call->into = options.into;
    options.native.tensors = input.tensors();
    if (const lent_memory* const lent = input.lent()) {
        call->lent = lent->of;
        call->copies = 0;
        return to.submit(call, lent->range, options.native);
    }
    if (input.size() > call->place.request.size())
        raise(status::message_too_large, "the request has " + std::to_string(input.size()) +
                                             " bytes, and this channel "
                                             "takes " +
                                             std::to_string(call->place.request.size()) +
                                             ": connect with a larger request_bytes");
    input.copy_to(call->place.request);
    return to.submit(call, input.size(), options.native);
}

void add_channel(nb::module_& module) {
    add_call(module);
    auto made = nb::class_<py_channel>(module, "Channel");
    add_streams(module, made);
    made
        .def("__init__", &connect, nb::arg("context"), nb::arg("uri"))
        .def(
            "call", &call, nb::arg("data").none(), CALL_ARGUMENTS,
            nb::sig("def call(self, data: object, " CALL_SIGNATURE ") -> Response"),
            "Sends `data` and waits for the response. data: bytes, one or several tensors, which are described, or a "
            "Region, which is lent. timeout: seconds; None: the channel's call_timeout. target: the model's name. "
            "metadata: keys and values for the handler. trace: W3C traceparent. into: a Region that gets the response.")
        .def("submit", &submit, nb::arg("data").none(), CALL_ARGUMENTS, nb::keep_alive<0, 1>(),
             nb::sig("def submit(self, data: object, " CALL_SIGNATURE ") -> Call"),
             "The same, but does not wait for the response: `Call.wait` does. It waits for a slot.")
        .def("_submit_for", &submit_for, nb::arg("future"), nb::arg("data").none(), CALL_ARGUMENTS,
             nb::sig("def _submit_for(self, future: object, data: object, " CALL_SIGNATURE ") -> Call | None"))
        .def("_poll", &poll, nb::sig("def _poll(self) -> list[tuple[object, object]]"))
        .def("_arm", &arm)
        .def(
            "_has_slot",
            [](const py_channel& self) {
                const connection::use used(*self.own);
                return self.own->has_slot();
            })
        .def_prop_ro("_call_timeout",
                     [](const py_channel& self) { return static_cast<double>(self.call_timeout.count()) * 1e-9; })
        .def_prop_ro("_fd", [](const py_channel& self) { return self.own->own.event_fd(); })
        .def(
            "_want_slot", [](const py_channel& self, bool wanted) { self.own->slot_wanted = wanted; },
            nb::arg("wanted"))
        .def(
            "_on_slot",
            [](const py_channel& self, nb::handle wake) {
                self.own->wake = reference(wake.is_none() ? nb::object() : nb::borrow(wake));
            },
            nb::arg("wake").none(), nb::sig("def _on_slot(self, wake: object) -> None"))
        .def("begin", &begin, nb::keep_alive<0, 1>(),
             "Takes a slot for a request that is written in place: `with channel.begin() as call: …`.")
        .def("close", &close,
             "Closes the connection; calls in flight end as Closed. Responses stay valid. Again: without effect.")
        .def(
            "targets",
            [](const py_channel& self) {
                const connection::use used(*self.own);
                auto found = [&] {
                    const unlocked meanwhile;
                    return self.own->own.targets();
                }();
                nb::list out;
                for (const auto& name : take(std::move(found))) out.append(name);
                return out;
            },
            nb::sig("def targets(self) -> list[str]"), "Asks the server for the names of its targets.")
        .def(
            "health",
            [](const py_channel& self, const std::string& target) {
                const connection::use used(*self.own);
                auto found = [&] {
                    const unlocked meanwhile;
                    return self.own->own.health(target);
                }();
                static constexpr std::array<const char*, 3> names{"unknown", "serving", "not_serving"};
                return names[static_cast<std::size_t>(take(std::move(found)))];
            },
            nb::arg("target") = "",
            "Asks the server whether it, or this target, serves: serving, not_serving, unknown.")
        .def_prop_ro("connected", [](const py_channel& self) { return self.own->connected(); })
        .def_prop_ro("scheme", [](const py_channel& self) { return std::string(self.own->own.scheme()); })
        .def_prop_ro(
            "why", [](const py_channel& self) { return std::string(self.own->own.why()); },
            "Why auto:// chose this scheme.")
        .def_prop_ro("endpoint", [](const py_channel& self) { return self.own->endpoint(); })
        .def_prop_ro("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"),
                     "Counters since the channel was made; `quarantined`: slots that wait for a late answer now.")
        .def_prop_ro("slots", [](const py_channel& self) { return self.own->own.slots(); })
        .def_prop_ro("max_request_bytes", [](const py_channel& self) { return self.own->own.max_request_bytes(); })
        .def_prop_ro("max_response_bytes", [](const py_channel& self) { return self.own->own.max_response_bytes(); });
}

}  // namespace accel::python
