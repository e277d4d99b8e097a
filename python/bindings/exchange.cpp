// SPDX-License-Identifier: Apache-2.0
#include "exchange.hpp"

#include "array_input.hpp"
#include "errors.hpp"
#include "options.hpp"

#include <array>
#include <chrono>
#include <cstring>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace accel::python {

namespace {

/// A part of a request, with its slot.
class part_memory final : public owner {
  public:
    explicit part_memory(request_part&& its_part) noexcept : own(std::move(its_part)) {}
    request_part own;
};

/// Names exchanges, for their event loops.
std::atomic<std::uint64_t> next_key{0};

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
    const auto room = on_host(self).response();
    self.own->room_taken = true;
    return bytes_array(room, false, {}, pin(self.own));
}

array place(const py_exchange& self, nb::handle shape, nb::handle type) {
    const auto [one, length] = place_one(shape, type);  // runs Python, which may answer
    exchange& own = on_host(self);
    if (length > own.response().size())
        raise(status::message_too_large,
              "the client takes responses of up to " + std::to_string(own.response().size()) + " bytes");
    std::memset(own.response().data(), 0, one.offset);  // not bytes of earlier answers
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

/// Other threads let go of the GIL while they wait here.
constexpr std::chrono::milliseconds slice_of_wait{200};

constexpr const char* nobody_waits = "nobody waits for this answer any more: end the handler";

/// Why no part is sent or received.
[[noreturn]] void raise_over(status why) {
    if (why == status::cancelled || why == status::peer_lost) raise(why, nobody_waits);
    if (why == status::again)
        raise(why,
              "this thread serves the client, so that nothing arrives while it waits: make the handler a generator, or "
              "answer on a thread of your own");
    if (why == status::unsupported)
        raise(why, "this target answers in parts: the client must call it with stream(…), not with call(…)");
    raise(why);
}

/// A part's bytes: in one piece, or packed there.
std::span<const std::byte> part_bytes(const payload_input& input, std::vector<std::byte>& packed) {
    const std::size_t size = input.part_size();
    if (const auto plain = input.part_bytes()) return *plain;
    packed.resize(size);
    input.copy_part_to(packed);
    return packed;
}

void check_part_size(const exchange& of, std::size_t size) {
    if (size > of.response().size())
        raise(status::message_too_large, "the part has " + std::to_string(size) + " bytes, and the client takes " +
                                             std::to_string(of.response().size()) +
                                             ": it may connect with a larger response_bytes");
}

void send_part(const py_exchange& self, nb::handle data) {
    const payload_input input(data);
    std::vector<std::byte> packed;
    const auto bytes = part_bytes(input, packed);
    const served::use used(*self.own);
    exchange& own = on_host(self);
    check_part_size(own, bytes.size());
    status sent = status::timed_out;
    while (sent == status::timed_out) {
        const unlocked meanwhile;
        sent = own.send(bytes, slice_of_wait);
    }
    if (sent != status::ok) raise_over(sent);
}

bool try_send_part(const py_exchange& self, nb::handle data) {
    const payload_input input(data);
    std::vector<std::byte> packed;
    const auto bytes = part_bytes(input, packed);
    const served::use used(*self.own);
    exchange& own = on_host(self);
    check_part_size(own, bytes.size());
    const status sent = own.send(bytes);
    if (sent != status::ok && sent != status::again) raise_over(sent);
    return sent == status::ok;
}

bool continues(const py_exchange& self) {
    self.own->asked_for_parts = true;
    return self.own->open().continues();
}

nb::object part_view(request_part&& part) {
    if (part.last() && part.bytes().empty()) return nb::none();
    auto memory = std::make_shared<part_memory>(std::move(part));
    const auto bytes = memory->own.bytes();
    return view_of(bytes_array({const_cast<std::byte*>(bytes.data()), bytes.size()}, true, {}, pin(memory)));
}

/// The next part of the request; None: an empty one that ends it.
nb::object receive_part(const py_exchange& self) {
    const served::use used(*self.own);
    exchange& own = on_host(self);
    for (;;) {
        request_part part = [&] {
            const unlocked meanwhile;
            return own.receive(slice_of_wait);
        }();
        if (part) return part_view(std::move(part));
        if (part.status() != status::timed_out) raise_over(part.status());
    }
}

/// False: nothing has arrived.
nb::object try_receive_part(const py_exchange& self) {
    const served::use used(*self.own);
    request_part part = on_host(self).receive();
    if (part) return part_view(std::move(part));
    if (part.status() != status::again) raise_over(part.status());
    return nb::borrow(Py_False);
}

bool await_parts(const py_exchange& self, const py_waker& waker, bool room) {
    const served::use used(*self.own);
    return self.own->await(waker.own, room);
}

void fail(const py_exchange& self, const std::string& message, std::uint32_t code, unsigned reason) {
    const served::use used(*self.own);
    if (self.own->answered()) raise(status::invalid_state, already);
    if (reason == 0 || reason >= status_count) raise(status::invalid_argument, "status is one of Status, not OK");
    static_cast<void>(self.own->reply({.reason = static_cast<status>(reason), .code = code, .text = message}));
}

bool cancelled(const py_exchange& self) {
    exchange* const own = self.own->open_or_null();
    return own != nullptr && own->cancelled();
}

void check_answer(status outcome) {
    // If the client has left, the handler did nothing wrong, and the library counts it.
    if (outcome != status::ok && outcome != status::peer_lost) raise(outcome, "the answer was not sent");
}

}  // namespace

served::served(exchange&& one) noexcept : key(next_key++), local_(one.scheme() == "local"), own_(std::move(one)) {}

exchange& served::open() {
    const std::lock_guard held(lock_);
    if (!own_ || waiting_) raise(status::invalid_state, already);
    return *own_;
}

served::use::use(served& of) : of_(of) {
    if (of.busy_.exchange(true, std::memory_order_acquire))
        raise(status::invalid_state, "another thread sends, receives or answers here: use an exchange on one at once");
}

bool served::await(const std::shared_ptr<loop_waker>& to, bool room) {
    exchange& one = open();
    const loop_waker::post post{to, key};
    if (!told_) told_ = to;
    if (told_ != to) raise(status::invalid_state, "this exchange is used in another event loop");
    if (!for_end_) for_end_.emplace(one.stop_token(), post);
    auto& wait = room ? for_room_ : for_request_;
    if (!wait) wait = std::make_shared<part_wait>(post);
    if (one.cancelled()) return true;
    return wait->arm(one, room);
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
    for (const auto& [name, value] : what.metadata) list.push_back({name, value});
    const status outcome = list.empty() ? own_->reply(what.length) : own_->reply(what.length, list);
    // After fork() the parent answers: the exchange is empty here.
    if (outcome == status::ok || outcome == status::peer_lost || outcome == status::invalid_state) own_.reset();
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
    // What runs Python comes first: it may answer this exchange, or let another thread do so.
    served::answer what;
    const metadata_input entries(metadata);
    for (const auto& [key, value] : entries.list()) what.metadata.emplace_back(key, value);
    const bool placed = !data.is_valid() || data.is_none();
    std::optional<payload_input> input;
    if (!placed && PyLong_Check(data.ptr()) == 0) input.emplace(data);
    const served::use used(*self.own);
    exchange& own = on_host(self);
    if (!self.own->asked_for_parts && own.continues()) {
        constexpr const char* text = "this target takes no requests in parts: its handler has read the first one alone";
        return check_answer(self.own->reply({.reason = status::unsupported, .text = text}));
    }
    const bool describes = placed ? self.own->placed_bytes != 0 : input && !input->tensors().empty();
    if (self.own->described && !describes)
        raise(status::invalid_state,
              "an answer with tensors has failed, and its description is still there: answer with tensors, or fail");
    const std::span<std::byte> room = own.response();
    const auto check_size = [&](std::size_t size) {
        if (size > room.size())
            raise(status::message_too_large, "the response has " + std::to_string(size) +
                                                 " bytes, and the client takes " + std::to_string(room.size()) +
                                                 ": it may connect with a larger "
                                                 "response_bytes");
    };
    if (placed) {
        what.length = self.own->placed_bytes;
        if (describes) check_answer(own.describe(what.length, std::span(&self.own->placed, 1)));
    } else if (!input) {
        const long long length = PyLong_AsLongLong(data.ptr());
        if (length == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
        if (length < 0 || PyBool_Check(data.ptr()) != 0)
            raise(status::invalid_argument, "the length of a response is a number of bytes, 0 or more");
        what.length = static_cast<std::size_t>(length);
        check_size(what.length);
        if (length != 0 && !self.own->room_taken)
            raise(status::invalid_argument, "nothing was written to request.response: its bytes are of other answers");
    } else {
        what.length = input->size();
        check_size(what.length);
        if (const lent_memory* const lent = input->lent()) {
            if (lent->of->whole.kind() != memory_kind::host())
                raise(status::unsupported, "a Region on a GPU is not an answer yet: copy it to the host");
            const auto bytes = lent->range.bytes();
            std::memmove(room.data(), bytes.data(), bytes.size());
        } else {
            input->copy_to(room);
        }
        if (describes) check_answer(own.describe(what.length, input->tensors()));
    }
    self.own->described = describes;
    check_answer(self.own->reply(std::move(what)));
}

void reply_with_result(const py_exchange& self, nb::handle result) {
    if (result.is_none() || self.own->answered()) return;
    if (PyLong_Check(result.ptr()) != 0)
        raise(status::invalid_argument,
              "a handler returns bytes or tensors: after writing in place, call request.reply(length) and return None");
    reply_with(self, result, nb::none());
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
        .def("_reply_result", &reply_with_result, nb::arg("result").none(),
             nb::sig("def _reply_result(self, result: object) -> None"))
        .def("fail", &fail, nb::arg("message"), nb::kw_only(), nb::arg("code") = 0, nb::arg("status") = 16,
             "Answers with a failure: a text, a number of the handler's own, and a Status, usually APPLICATION_ERROR.")
        .def_prop_ro(
            "in_parts", [](const py_exchange& self) { return self.own->open().in_parts(); },
                     "Whether the client takes the response in parts (`Channel.stream`).")
        .def("send", &send_part, nb::arg("data").none(), nb::sig("def send(self, data: object) -> None"),
             "Sends a part of the response: bytes or one tensor. Waits until the client has room for it. Cancelled, "
             "PeerLost: nobody waits for it. For threads of the application; a generator's `yield` does the same.")
        .def(
            "parts",
            [](nb::handle self) {
                return nb::module_::import_("accel_transport._stream").attr("RequestParts")(self);
            },
            nb::sig("def parts(self) -> accel_transport._stream.RequestParts"),
            "The parts of the request, in order, with `for` or `async for`; the whole request, if it came in one "
            "piece. An empty first piece and an empty last part are left out. Raises Cancelled or PeerLost when nobody "
            "waits for the answer any more.")
        .def("_try_send", &try_send_part, nb::arg("data").none(), nb::sig("def _try_send(self, data: object) -> bool"))
        .def_prop_ro("_continues", &continues)
        .def("_receive", &receive_part, nb::sig("def _receive(self) -> memoryview | None"))
        .def("_try_receive", &try_receive_part, nb::sig("def _try_receive(self) -> memoryview | bool | None"))
        .def("_await", &await_parts, nb::arg("waker"), nb::arg("room"))
        .def_prop_ro("_key", [](const py_exchange& self) { return self.own->key; })
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
