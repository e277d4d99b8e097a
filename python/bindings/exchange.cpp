// SPDX-License-Identifier: Apache-2.0
#include "exchange.hpp"

#include "array_input.hpp"
#include "errors.hpp"
#include "options.hpp"

#include <array>
#include <chrono>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace accel::python {

namespace {

constexpr const char* already = "this exchange was answered before: answer each request once";

/// The exchange, whose memory may be used at once.
exchange& on_host(const py_exchange& self) {
    exchange& own = self.own->open();
    if (own.memory() != memory_kind::host())
        raise(status::unsupported, "this server's memory is on a GPU, whose streams this module does not order yet");
    return own;
}

std::span<std::byte> request_of(const exchange& of) {
    const auto bytes = of.request();
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

array request_array(const py_exchange& self) {
    return bytes_array(request_of(on_host(self)), true, {}, pin(self.own));
}

array room_array(const py_exchange& self) {
    return bytes_array(on_host(self).response(), false, {}, pin(self.own));
}

array place(const py_exchange& self, nb::handle shape, nb::handle type) {
    exchange& own = on_host(self);
    const auto [one, length] = place_one(shape, type);
    if (length > own.response().size())
        raise(status::message_too_large,
              "the client takes responses of up to " + std::to_string(own.response().size()) + " bytes");
    self.own->placed = one;
    self.own->placed_bytes = length;
    return tensor_array(one, own.response(), false, {}, pin(self.own));
}

nb::list tensors_of(const py_exchange& self) {
    std::array<tensor, max_tensors> room;
    exchange& own = on_host(self);
    const auto found = own.tensors(room);
    nb::list out;
    if (!found && found.code() == status::not_found) return out;
    if (!found) raise(found.code(), "the tensors of this request cannot be read");
    for (const tensor& one : *found) out.append(nb::cast(tensor_array(one, request_of(own), true, {}, pin(self.own))));
    return out;
}

nb::object tensor_at(const py_exchange& self, std::size_t index) {
    const nb::list all = tensors_of(self);
    if (index < all.size()) return all[index];
    raise(status::not_found,
          "the request has " + std::to_string(all.size()) + " tensors: there is none " + std::to_string(index));
}

nb::dict metadata_of(const py_exchange& self) {
    metadata_room room;
    const auto found = self.own->open().metadata(room);
    if (!found && found.code() == status::not_found) return {};
    if (!found) raise(found.code(), "the metadata of this request cannot be read");
    return metadata_dict(*found);
}

std::optional<std::string> trace_of(const py_exchange& self) {
    const auto found = self.own->open().trace();
    return found ? std::optional(found->format()) : std::nullopt;
}

std::optional<std::string> baggage_of(const py_exchange& self) {
    std::array<char, max_baggage_bytes> room;
    const auto found = self.own->open().baggage(room);
    return found ? std::optional(std::string(*found)) : std::nullopt;
}

void fail(const py_exchange& self, const std::string& message, std::uint32_t code, unsigned reason) {
    if (self.own->answered()) raise(status::invalid_state, already);
    if (reason == 0 || reason >= status_count) raise(status::invalid_argument, "status is one of Status, not OK");
    static_cast<void>(self.own->reply({.reason = static_cast<status>(reason), .code = code, .text = message}));
}

bool cancelled(const py_exchange& self) {
    exchange* const own = self.own->open_or_null();
    return own != nullptr && own->cancelled();
}

void check_answer(status outcome) {
    // A client that has gone is no mistake of the handler's: the library counts it.
    if (outcome != status::ok && outcome != status::peer_lost) raise(outcome, "the answer was not sent");
}

}  // namespace

exchange& served::open() {
    const std::lock_guard held(lock_);
    if (!own_ || waiting_) raise(status::invalid_state, already);
    return *own_;
}

bool served::answered() const noexcept {
    const std::lock_guard held(lock_);
    return !own_ || waiting_;
}

bool served::waits() const noexcept {
    const std::lock_guard held(lock_);
    return waiting_.has_value();
}

exchange* served::open_or_null() noexcept {
    const std::lock_guard held(lock_);
    return own_ && !waiting_ ? &*own_ : nullptr;
}

status served::reply(answer&& what) {
    const std::lock_guard held(lock_);
    if (!own_ || waiting_) return status::invalid_state;
    waiting_ = std::move(what);
    if (views() != 0) return status::ok;
    const status outcome = send();
    return outcome;
}

status served::send() {
    const answer what = std::move(*waiting_);
    waiting_.reset();
    if (what.reason != status::ok) {
        const status outcome = own_->fail(what.reason, what.code, what.text);
        own_.reset();
        return outcome;
    }
    std::vector<metadata_entry> list;
    for (const auto& [key, value] : what.metadata) list.push_back({key, value});
    const status outcome = list.empty() ? own_->reply(what.length) : own_->reply(what.length, list);
    if (outcome == status::ok || outcome == status::peer_lost) own_.reset();
    return outcome;
}

void served::unpinned() noexcept {
    const std::lock_guard held(lock_);
    if (!waiting_ || !own_) return;
    const status outcome = send();
    // Nobody is there to be told: the client is, as of an exception.
    if (outcome == status::ok || outcome == status::peer_lost || !own_) return;
    static_cast<void>(own_->fail(status::application_error, 0,
                                 std::string("the answer was not sent: ") + std::string(to_string(outcome))));
    own_.reset();
}

void reply_with(const py_exchange& self, nb::handle data, nb::handle metadata) {
    exchange& own = on_host(self);
    served::answer what;
    const metadata_input entries(metadata);
    for (const auto& [key, value] : entries.list()) what.metadata.emplace_back(key, value);
    const std::span<std::byte> room = own.response();
    const auto check_size = [&](std::size_t size) {
        if (size > room.size())
            raise(status::message_too_large, "the response has " + std::to_string(size) +
                                                 " bytes, and the client takes " + std::to_string(room.size()) +
                                                 ": it may connect with a larger "
                                                 "response_bytes");
    };
    if (!data.is_valid() || data.is_none()) {
        what.length = self.own->placed_bytes;
        if (what.length != 0) check_answer(own.describe(what.length, std::span(&self.own->placed, 1)));
    } else if (PyLong_Check(data.ptr())) {
        const long long length = PyLong_AsLongLong(data.ptr());
        if (length == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
        if (length < 0) raise(status::invalid_argument, "the length of a response is not negative");
        what.length = static_cast<std::size_t>(length);
        check_size(what.length);
    } else {
        const payload_input input(data);
        what.length = input.size();
        check_size(what.length);
        if (const lent_memory* const lent = input.lent()) {
            const auto bytes = lent->range.bytes();
            std::copy(bytes.begin(), bytes.end(), room.begin());
        } else {
            input.copy_to(room);
        }
        if (!input.tensors().empty()) check_answer(own.describe(what.length, input.tensors()));
    }
    check_answer(self.own->reply(std::move(what)));
}

void add_exchange(nb::module_& module) {
    nb::class_<py_exchange>(
        module, "Exchange",
        "One request at its server. A handler answers it once, with `reply`, `fail` or what it returns"
        ", now or later and on any thread. Dropped without an answer, its client gets Abandoned. Its "
        "memory is the client's again after the answer; so the answer leaves when the arrays and views "
        "made of it are gone.")
        .def_prop_ro(
            "data", [](const py_exchange& self) { return view_of(request_array(self)); },
            nb::sig("def data(self) -> memoryview"), "All bytes of the request, in place and read-only.")
        .def("tensor", &tensor_at, nb::arg("index") = 0, nb::sig("def tensor(self, index: int = 0) -> Tensor"),
             "One of the tensors that the client has described, in place.")
        .def_prop_ro("tensors", &tensors_of, nb::sig("def tensors(self) -> list[Tensor]"))
        .def_prop_ro(
            "response", [](const py_exchange& self) { return view_of(room_array(self)); },
            nb::sig("def response(self) -> memoryview"),
            "Room for the response, to be written in place; then `reply(length)`.")
        .def("response_tensor", &place, nb::arg("shape"), nb::arg("dtype"),
             nb::sig("def response_tensor(self, shape: int | collections.abc.Sequence[int], dtype: object) -> Tensor"),
             "Room for a response that is one tensor, to be written in place; then `reply()` describes and sends it.")
        .def("reply", &reply_with, nb::arg("data") = nb::none(), nb::kw_only(), nb::arg("metadata") = nb::none(),
             nb::sig("def reply(self, data: object = None, *, metadata: collections.abc.Mapping[str, str | bytes] | "
                     "None = None) -> None"),
             "Answers with bytes, tensors, the first `data` bytes of `response`, or the tensor of `response_tensor`.")
        .def("fail", &fail, nb::arg("message"), nb::kw_only(), nb::arg("code") = 0, nb::arg("status") = 16,
             "Answers with a failure: a text, a number of the handler's own, and a Status, usually APPLICATION_ERROR.")
        .def_prop_ro("answered", [](const py_exchange& self) { return self.own->answered(); })
        .def_prop_ro("cancelled", &cancelled, "Whether nobody waits for the answer any more. Answer nevertheless.")
        .def_prop_ro(
            "time_left",
            [](const py_exchange& self) { return static_cast<double>(self.own->open().time_left().count()) * 1e-9; },
            "Seconds until the client's deadline; 0 after it.")
        .def_prop_ro("metadata", &metadata_of, nb::sig("def metadata(self) -> dict[str, str | bytes]"),
                     "Of the request. Anybody who may connect can send any.")
        .def_prop_ro("trace", &trace_of, "The request's W3C traceparent.")
        .def_prop_ro("baggage", &baggage_of, "The request's W3C Baggage.")
        .def_prop_ro(
            "target", [](const py_exchange& self) { return std::string(self.own->open().target()); },
            "The name that the request asked for; empty: none.")
        .def_prop_ro(
            "peer", [](const py_exchange& self) { return std::string(self.own->open().peer()); },
            "The client's public key, or its certificate's name; empty: not authenticated.")
        .def_prop_ro("scheme", [](const py_exchange& self) { return std::string(self.own->open().scheme()); })
        .def_prop_ro("session_id", [](const py_exchange& self) { return self.own->open().session_id(); });
}

}  // namespace accel::python
