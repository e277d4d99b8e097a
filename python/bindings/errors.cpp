// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include <string>

namespace accel::python {

namespace {
nb::object made(status code, std::string_view message, std::uint32_t handlers_code, int native) {
    // A peer's text may be any bytes.
    const auto text =
        nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
    return nb::module_::import_("accel_transport._errors")
        .attr("exception_of")(static_cast<unsigned>(code), text, handlers_code, native);
}
}  // namespace

nb::object exception_of(status code, std::string_view message, std::uint32_t handlers_code) {
    return made(code, message, handlers_code, 0);
}

void raise(status code, std::string_view message, std::uint32_t handlers_code, int native) {
    const nb::object exception = made(code, message, handlers_code, native);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
}

void raise(const error& failure) {
    raise(failure.code, failure.message, 0, failure.native);
}

}  // namespace accel::python
