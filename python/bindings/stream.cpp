// SPDX-License-Identifier: Apache-2.0
#include "array_input.hpp"
#include "channel.hpp"
#include "channel_module.hpp"
#include "errors.hpp"
#include "options.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

/// Calls in parts. The classes of Python (_stream.py, aio.py) say when to wait.
namespace accel::python {

namespace {

using std::chrono::steady_clock;

/// The Python object: its end cancels the call, if it is in flight.
struct py_stream {
    explicit py_stream(std::shared_ptr<channel_call> its_own) noexcept : own(std::move(its_own)) {}
    py_stream(py_stream&& other) noexcept
        : own(std::move(other.own)), metadata(std::move(other.metadata)), whole(other.whole), ended(other.ended) {}
    py_stream& operator=(py_stream&&) = delete;
    ~py_stream() { give_up(); }
    void cancel() const noexcept {
        if (own && own->now == channel_call::stage::in_flight && !ending()) own->home->cancel(*own);
    }
    void give_up() noexcept {
        if (!own) return;
        own->abandoned = true;
        cancel();
        own->waiter.reset();
        own->arrived.clear();
        own.reset();
    }
    std::shared_ptr<channel_call> own;  ///< null: given up, or its end was given
    nb::object metadata;                ///< of the end
    bool whole = false;  ///< the response comes in one piece, which may be empty
    bool ended = false;
};

/// How many parts may be unread, if the caller names no number: half of the slots, so that other calls have some, and
/// two where possible, because the variable of a loop keeps one.
std::uint32_t parts_for(const channel& of, bool continues) {
    const std::uint32_t kept = continues ? 3 : 1;  // the call, and two parts of its request
    const std::uint32_t most = of.slots() > kept ? of.slots() - kept : 1;
    return std::min(most, std::clamp<std::uint32_t>(most / 2, 2, 8));
}

/// Null: too few slots are free.
std::shared_ptr<channel_call> try_start(connection& home, const payload_input& input, nb::handle waiter,
                                        call_options& options) {
    auto call = home.begin();
    if (!call) return nullptr;
    call->in_parts = true;
    call->parts = options.native.parts;
    call->unread = std::make_shared<std::atomic<std::uint32_t>>(0);
    if (!waiter.is_none()) call->waiter = reference(nb::borrow(waiter));
    if (!send(home, call, input, options)) return nullptr;
    return call;
}

std::optional<py_stream> start(py_channel& self, nb::handle data, nb::handle waiter, std::uint32_t parts,
                               std::optional<double> part_timeout, bool continues, bool in_one_piece,
                               std::optional<double> timeout, nb::handle target, nb::handle metadata, nb::handle trace,
                               nb::handle baggage, nb::handle into) {
    call_options options(timeout, target, metadata, trace, baggage, into);
    const connection::use used(*self.own);
    const payload_input input(data);
    options.native.continues = continues;
    if (!in_one_piece) options.native.parts = parts != 0 ? parts : parts_for(self.own->own, continues);
    if (part_timeout) options.native.part_timeout = std::max(duration_of(*part_timeout), std::chrono::nanoseconds(1));
    const auto limit = options.native.timeout.count() != 0 ? options.native.timeout : self.call_timeout;
    const auto deadline = steady_clock::now() + limit;
    for (;;) {
        if (auto call = try_start(*self.own, input, waiter, options)) {
            py_stream made(std::move(call));
            made.whole = in_one_piece;
            return made;
        }
        if (!waiter.is_none()) return std::nullopt;
        self.own->wait_for_slot(deadline);
    }
}

/// The exception of a call that has failed.
[[noreturn]] void raise_end(channel_call& call) {
    const call_outcome& outcome = call.outcome();
    const std::string text(reinterpret_cast<const char*>(outcome.response.data()), outcome.response.size());
    const status code = outcome.status;
    const std::uint32_t handlers_code = outcome.code;
    raise(code, text, handlers_code);
}

nb::object metadata_of(const channel_call& call) {
    metadata_room room;
    const auto found = call.metadata(room);
    return found ? nb::object(metadata_dict(*found)) : nb::object(nb::dict());
}

/// The next part that has arrived, the last answer included; None: nothing, or (`_ended`) the end. Raises if the call
/// failed.
nb::object take_part(py_stream& self) {
    if (!self.own) return nb::none();
    channel_call& call = *self.own;
    if (!call.arrived.empty()) {
        response part{std::move(call.arrived.front())};
        call.arrived.pop_front();
        return nb::cast(std::move(part));
    }
    if (call.now != channel_call::stage::ended) return nb::none();
    const std::shared_ptr<channel_call> last = std::exchange(self.own, nullptr);
    self.ended = true;
    const status how = last->outcome().status;
    if (how == status::timed_out && last->parts != 0 && last->unread->load() == last->parts)
        raise(how, "all " + std::to_string(last->parts) +
                       " parts were kept, so that the server had no room: release parts while you read, or ask for "
                       "more with parts=…");
    if (how != status::ok) raise_end(*last);
    self.metadata = metadata_of(*last);
    if (!self.whole && last->outcome().response.empty()) return nb::none();
    return nb::cast(response{last});
}

void look(const py_stream& self) {
    if (!self.own) return;
    const connection::use used(*self.own->home);
    self.own->home->poll();
}

void wait_for_part(const py_stream& self) {
    if (!self.own) return;
    const connection::use used(*self.own->home);
    self.own->home->wait_for_part(*self.own);
}

void wait_for_room(const py_stream& self) {
    if (!self.own) return;
    const connection::use used(*self.own->home);
    self.own->home->wait_for_room(*self.own);
}

/// Why the request does not go on.
void raise_over(const py_stream& self) {
    if (self.own && self.own->now == channel_call::stage::ended && self.own->outcome().status != status::ok)
        raise_end(*self.own);
    raise(status::invalid_state, "the call has ended before its request: iterate, to get its answer or its failure");
}

/// False: no slot is free for it. None: the call takes no more parts.
std::optional<bool> try_send(const py_stream& self, nb::handle data, bool last) {
    if (!self.own || self.own->now == channel_call::stage::ended) return std::nullopt;
    connection& home = *self.own->home;
    const connection::use used(home);
    const payload_input input(data);
    const std::size_t size = input.part_size();
    const auto begun = home.own.begin_part(self.own->place.id);
    if (begun.code() == status::again) return false;
    if (!begun) {
        home.poll();
        return std::nullopt;
    }
    status sent = status::message_too_large;
    try {
        if (size <= begun->request.size()) {
            if (size != 0) input.copy_part_to(begun->request);
            sent = home.own.submit_part(begun->id, size, {.last = last});
        }
    } catch (...) {
        home.own.release(begun->id);
        throw;
    }
    if (sent == status::ok) return true;
    home.own.release(begun->id);
    if (sent == status::message_too_large)
        raise(sent, "the part has " + std::to_string(size) + " bytes, and this channel takes " +
                        std::to_string(begun->request.size()) + ": connect with a larger request_bytes");
    home.poll();
    return std::nullopt;
}

}  // namespace

void add_streams(nb::module_& module, nb::class_<py_channel>& channel) {
    nb::class_<py_stream>(module, "_Stream")
        .def("_take", &take_part, nb::sig("def _take(self) -> Response | None"))
        .def("_look", &look)
        .def("_wait_for_part", &wait_for_part)
        .def("_wait_for_room", &wait_for_room)
        .def("_try_send", &try_send, nb::arg("data").none(), nb::arg("last"),
             nb::sig("def _try_send(self, data: object, last: bool) -> bool | None"))
        .def("_raise_over", &raise_over)
        .def("_cancel", &py_stream::cancel)
        .def("_give_up", &py_stream::give_up)
        .def_prop_ro("_over", [](const py_stream& self) {
            return !self.own || self.own->now == channel_call::stage::ended; })
        .def_prop_ro("_ended", [](const py_stream& self) { return self.ended || !self.own; })
        .def_prop_ro(
            "_metadata", [](const py_stream& self) { return self.metadata.is_valid() ? self.metadata : nb::none(); },
            nb::sig("def _metadata(self) -> dict[str, str | bytes] | None"));
    channel.def("_start", &start, nb::arg("data").none(), nb::arg("waiter").none(), nb::arg("parts"),
                nb::arg("part_timeout").none(), nb::arg("continues"), nb::arg("in_one_piece"), CALL_ARGUMENTS,
                nb::sig("def _start(self, data: object, waiter: object, parts: int, part_timeout: float | None, "
                        "continues: bool, in_one_piece: bool, " CALL_SIGNATURE ") -> _Stream | None"));
}

}  // namespace accel::python
