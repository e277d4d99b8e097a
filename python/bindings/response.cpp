// SPDX-License-Identifier: Apache-2.0
#include "answer.hpp"
#include "errors.hpp"
#include "options.hpp"

#include <array>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

namespace accel::python {

namespace {

answer& open(const response& self) {
    if (!self.of) raise(status::invalid_state, "this response was released");
    return *self.of;
}

std::span<std::byte> bytes_of(const answer& of) noexcept {
    const auto bytes = of.outcome().response;
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

array whole(const response& self) {
    const answer& of = open(self);
    return bytes_array(bytes_of(of), true, of.where, pin(self.of));
}

nb::list tensors_of(const response& self) {
    std::array<tensor, max_tensors> room;
    const auto found = open(self).tensors(room);
    nb::list out;
    if (!found && found.code() == status::not_found) return out;
    if (!found) raise(found.code(), "the tensors of this response cannot be read");
    for (const tensor& one : *found)
        out.append(nb::cast(tensor_array(one, bytes_of(*self.of), true, self.of->where, pin(self.of))));
    return out;
}

nb::object tensor_at(const response& self, std::size_t index) {
    const nb::list all = tensors_of(self);
    if (index < all.size()) return all[index];
    raise(status::not_found,
          "the response has " + std::to_string(all.size()) + " tensors: there is none " + std::to_string(index));
}

nb::dict metadata_of(const response& self) {
    metadata_room room;
    const auto found = open(self).metadata(room);
    if (!found && found.code() == status::not_found) return {};
    if (!found) raise(found.code(), "the metadata of this response cannot be read");
    return metadata_dict(*found);
}

void release(response& self) {
    if (self.of && self.of->views() != 0)
        throw nb::buffer_error("the response's memory is in use: drop the arrays and views that were made of it first");
    self.of.reset();
}

nb::dict timeline_of(const response& self) {
    const timeline& times = open(self).outcome().timeline;
    const auto seconds = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; };
    nb::dict out;
    out["total"] = seconds(times.total);
    out["request"] = seconds(times.request);
    out["queue"] = seconds(times.queue);
    out["copy"] = seconds(times.copy);
    out["preprocessing"] = seconds(times.preprocessing);
    out["inference"] = seconds(times.inference);
    out["response"] = seconds(times.response);
    out["server"] = seconds(times.server);
    return out;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
    view->obj = nullptr;
    if (!nb::inst_ready(self)) {
        PyErr_SetString(PyExc_BufferError, "this response was not made by the library");
        return -1;
    }
    try {
        const nb::object bytes = nb::cast(whole(*nb::inst_ptr<response>(self)));
        // The view belongs to that object, and with it to the memory.
        return PyObject_GetBuffer(bytes.ptr(), view, flags);
    } catch (nb::python_error& failed) {
        failed.restore();
        return -1;
    } catch (...) {
        PyErr_SetString(PyExc_BufferError, "the response cannot be viewed");
        return -1;
    }
}

PyType_Slot response_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

}  // namespace

response response_of(std::shared_ptr<answer> of) {
    const call_outcome& ended = of->outcome();
    if (ended.status == status::ok) return {std::move(of)};
    const std::string text(reinterpret_cast<const char*>(ended.response.data()), ended.response.size());
    const status code = ended.status;
    const std::uint32_t handlers_code = ended.code;
    of.reset();
    raise(code, text, handlers_code);
}

void add_response(nb::module_& module) {
    nb::class_<response>(
        module, "Response", nb::type_slots(response_slots),
        "The response of a call, in place: it keeps a slot of its channel until it, and all arrays and "
        "views made of it, are gone or `release` was called. `memoryview(response)` and "
        "`numpy.from_dlpack(response.tensor(0))` copy nothing. Any thread may drop it.")
        .def("tensor", &tensor_at, nb::arg("index") = 0, nb::sig("def tensor(self, index: int = 0) -> Tensor"),
             "One of the tensors that the server has described, in place.")
        .def_prop_ro("tensors", &tensors_of, nb::sig("def tensors(self) -> list[Tensor]"), "All of them; often none.")
        .def_prop_ro(
            "data", [](const response& self) { return view_of(whole(self)); }, nb::sig("def data(self) -> memoryview"),
            "All bytes of the payload, in place.")
        .def_prop_ro("metadata", &metadata_of, nb::sig("def metadata(self) -> dict[str, str | bytes]"))
        .def_prop_ro("timeline", &timeline_of, nb::sig("def timeline(self) -> dict[str, float]"),
                     "Seconds that the call spent in each of its stages.")
        .def_prop_ro(
            "copies", [](const response& self) { return open(self).copies; },
            "How often this module copied the payload of request or response. The transport's own copies are "
            "in docs/memory.md.")
        .def("release", &release, "Gives the slot back now. BufferError: arrays or views still use it.")
        .def(
            "__dlpack__",
            [](const response& self, const nb::kwargs& arguments) {
                return tensor_at(self, 0).attr("__dlpack__")(**arguments);
            },
            nb::sig(
                "def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None, "
                "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing_extensions.CapsuleType"),
            "That of the first tensor.")
        .def(
            "__dlpack_device__", [](const response& self) { return tensor_at(self, 0).attr("__dlpack_device__")(); },
            nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
        .def("__bytes__",
             [](const response& self) {
                 if (open(self).where != memory_kind::host())
                     raise(status::unsupported, "this response is on a GPU: take it with DLPack");
                 const auto bytes = bytes_of(open(self));
                 return nb::bytes(bytes.data(), bytes.size());
             })
        .def("__len__", [](const response& self) { return bytes_of(open(self)).size(); })
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Response"))
        .def(
            "__exit__", [](response& self, const nb::args&) { release(self); },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace accel::python
